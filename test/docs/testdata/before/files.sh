head -c 1000000 /dev/urandom >big.bin
