hutch image load .python.tar
rm .python.tar .python.tar.layer
