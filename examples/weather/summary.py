"""Prints, for each year in seattle.csv, the mean high and the rain that fell."""
import csv
from collections import defaultdict

highs, rain = defaultdict(list), defaultdict(float)
with open("seattle.csv", newline="") as f:
    for day in csv.DictReader(f):
        year = day["date"][:4]
        highs[year].append(float(day["temp_max"]))
        rain[year] += float(day["precipitation"])

for year in sorted(highs):
    days = highs[year]
    print(f"{year}: {len(days)} days, mean high {sum(days) / len(days):.1f} °C, rain {rain[year]:.0f} mm")
