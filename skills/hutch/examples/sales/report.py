import csv

rows = list(csv.DictReader(open("sales.csv")))
best = max(rows, key=lambda row: int(row["amount"]))
print("best month:", best["month"])
