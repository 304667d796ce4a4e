// A server in Node, with nothing installed.
import { createHash } from 'node:crypto'
import { createServer } from 'node:http'

const server = createServer((req, res) => {
  if (req.url === '/redirect') return res.writeHead(302, { Location: '/elsewhere?a=b' }).end()
  if (req.url === '/large') return res.end(Buffer.alloc(32 << 20, Buffer.from(Array.from({ length: 256 }, (_, i) => i))))
  if (req.url === '/headers') return res.end(JSON.stringify(Object.entries(req.headers)))
  if (req.url === '/events') {
    res.writeHead(200, { 'Content-Type': 'text/event-stream' })
    let i = 0
    const tick = setInterval(() => res.write(`data: ${i++}\n\n`), 50)
    return res.on('close', () => clearInterval(tick))
  }
  if (req.method === 'POST') {
    const hash = createHash('sha256')
    let n = 0
    req.on('data', b => { hash.update(b); n += b.length })
    return req.on('end', () => res.end(`${n} ${hash.digest('hex')}`))
  }
  res.setHeader('Content-Type', 'text/html')
  res.end(`<!doctype html><h1>Hello from ${process.argv[3]}</h1>`)
})

server.on('upgrade', (req, socket) => {
  const key = createHash('sha1').update(req.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').digest('base64')
  socket.write(`HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${key}\r\n\r\n`)
  socket.on('error', () => {})
  socket.on('data', b => { // one short frame at a time
    const size = b[1] & 127
    if ((b[0] & 15) === 8) return socket.end(Buffer.from([0x88, 0]))
    const body = Buffer.concat([Buffer.from('echo '), b.subarray(6, 6 + size).map((x, i) => x ^ b[2 + i % 4])])
    socket.write(Buffer.concat([Buffer.from([b[0], body.length]), body]))
  })
})
server.listen(Number(process.argv[2]), '::')
