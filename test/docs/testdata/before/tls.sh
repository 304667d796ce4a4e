openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=hutch.example.com -addext subjectAltName=DNS:hutch.example.com -keyout key.pem -out chain.pem 2>/dev/null
