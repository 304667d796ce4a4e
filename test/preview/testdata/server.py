"""A server in Python: pages, streams, WebSockets, and bad manners."""
import base64, hashlib, http.server, json, sys, threading, time


def accept(key):
    return base64.b64encode(hashlib.sha1((key + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').encode()).digest()).decode()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def say(self, body, status=200, **headers):
        body = body if isinstance(body, bytes) else body.encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace('_', '-'), value)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        total, digest, left = 0, hashlib.sha256(), int(self.headers['Content-Length'])
        while left:
            piece = self.rfile.read(min(left, 1 << 16))
            digest.update(piece)
            left, total = left - len(piece), total + len(piece)
        self.say('%d %s' % (total, digest.hexdigest()))

    def do_GET(self):
        path = self.path.partition('?')[0]
        if self.headers.get('Upgrade', '').lower() == 'websocket':
            return self.websocket()
        if path == '/redirect':
            return self.say('', 302, Location='/elsewhere?a=b')
        if path == '/headers':
            return self.say(json.dumps(list(self.headers.items())))
        if path == '/large':
            return self.say(bytes(range(256)) * (32 << 12))
        if path == '/cookie':
            return self.say('set', Set_Cookie='who=%s; Domain=localhost; Path=/' % sys.argv[2])
        if path == '/events':
            return self.events()
        if path == '/hang':
            return threading.Event().wait()
        self.say('<!doctype html><title>%s</title><h1>Hello from %s</h1>' % (sys.argv[2], sys.argv[2]), Content_Type='text/html')

    def events(self):
        self.send_response(200)
        self.send_header('Content-Type', 'text/event-stream')
        self.send_header('Connection', 'close')
        self.end_headers()
        try:
            for i in range(1000):
                self.wfile.write(b'data: %d\n\n' % i)
                self.wfile.flush()
                time.sleep(.05)
        except OSError:
            pass
        self.close_connection = True

    def websocket(self):
        self.send_response(101)
        self.send_header('Upgrade', 'websocket')
        self.send_header('Connection', 'Upgrade')
        self.send_header('Sec-WebSocket-Accept', accept(self.headers['Sec-WebSocket-Key']))
        self.end_headers()
        self.close_connection = True
        while True:
            head = self.rfile.read(2)
            if len(head) < 2:
                return
            size = head[1] & 127
            if size == 126:
                size = int.from_bytes(self.rfile.read(2), 'big')
            mask = self.rfile.read(4)
            body = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(size)))
            if head[0] & 15 == 8:
                self.wfile.write(b'\x88' + bytes([len(body)]) + body)
                return
            body = b'echo ' + body
            size = bytes([len(body)]) if len(body) < 126 else b'\x7e' + len(body).to_bytes(2, 'big')
            self.wfile.write(bytes([head[0]]) + size + body)

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


Server(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()
