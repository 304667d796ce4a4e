printf '%s\n' 1 2 3 >data.csv
printf '%s\n' 'import sys' 'print(sys.argv, sum(float(line) for line in sys.stdin))' | tee script.py >sum.py
printf '%s\n' 'echo ran' | tee script.sh >run.sh
printf '%s\n' 'console.log(6 * 7)' >app.js
mkdir project && touch project/README
