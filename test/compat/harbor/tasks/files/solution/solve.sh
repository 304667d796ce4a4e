#!/bin/bash
set -e
test "$PWD" = /app
sort words.txt >out/sorted.txt
