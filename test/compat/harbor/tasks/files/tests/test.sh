#!/bin/bash
# The order, the link of the image, and a folder of the tests.
test "$(cat /app/out/sorted.txt)" = "$(printf 'apple\nfig\npear')" && test "$(readlink /app/out/words)" = ../words.txt && test "$(cat "$(dirname "$0")/more/marker")" = here
echo $((1 - ($? != 0))) >/logs/verifier/reward.txt
