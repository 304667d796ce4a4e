"""A web application of one file: monthly rain as a chart, and a clock that the server updates by server-sent events."""
import csv, http.server, json, time

MONTHS = 'Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec'.split()


def rain():
    """Millimetres of rain by year and month."""
    years = {}
    with open('seattle.csv') as f:
        for day in csv.DictReader(f):
            year, month = day['date'][:4], int(day['date'][5:7])
            years.setdefault(year, [0] * 12)[month - 1] += float(day['precipitation'])
    return years


PAGE = '''<!doctype html>
<meta charset="utf-8">
<title>Rain in Seattle</title>
<style>
  body { font: 15px/1.5 system-ui, sans-serif; max-width: 760px; margin: 28px auto; color: #1d2733 }
  h1 { font-size: 22px; margin: 0 } p { margin: 2px 0 14px; color: #5b6875 }
  svg { width: 100%; background: #f6f8fa; border-radius: 8px }
  rect { opacity: .85 } text { font-size: 11px; fill: #5b6875 }
</style>
<h1>Rain in Seattle</h1>
<p>Millimetres a month, 2012 to 2015. It is <b id="clock">...</b> in the sandbox.</p>
<svg viewBox="0 0 760 300" id="chart"></svg>
<script src="rain.js"></script>
<script>
const colours = ['#2a6f97', '#61a5c2', '#89c2d9', '#e09f3e']
const bars = Object.values(years), most = Math.max(...bars.flat())
document.getElementById('chart').innerHTML = months.map((month, m) =>
  bars.map((year, y) => `<rect x="${20 + m * 61 + y * 13}" y="${270 - 245 * year[m] / most}" width="11" height="${245 * year[m] / most}" fill="${colours[y]}"/>`).join('') +
  `<text x="${36 + m * 61}" y="290">${month}</text>`).join('') +
  Object.keys(years).map((year, y) => `<rect x="${560 + y * 48}" y="10" width="9" height="9" fill="${colours[y]}"/><text x="${572 + y * 48}" y="18">${year}</text>`).join('')
new EventSource('clock').onmessage = e => { document.getElementById('clock').textContent = e.data }
</script>'''


class App(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        if self.path == '/clock':
            self.send_header('Content-Type', 'text/event-stream')
            self.end_headers()
            try:
                while True:
                    self.wfile.write(time.strftime('data: %H:%M:%S\n\n').encode())
                    time.sleep(1)
            except OSError:
                return
        kind, body = ('text/javascript', f'const months = {json.dumps(MONTHS)}, years = {json.dumps(rain())}') if self.path == '/rain.js' else ('text/html', PAGE)
        self.send_header('Content-Type', kind)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *args):
        pass


http.server.ThreadingHTTPServer(('', 8000), App).serve_forever()
