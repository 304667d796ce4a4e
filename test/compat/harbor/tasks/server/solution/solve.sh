#!/bin/bash
nohup python3 -m http.server 8000 >/tmp/server.log 2>&1 &
until python3 -c 'import socket; socket.create_connection(("127.0.0.1", 8000))' 2>/dev/null; do sleep 0.2; done
