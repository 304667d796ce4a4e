#!/bin/bash
test "$(cat /app/a)" = 1
echo $((1 - ($? != 0))) >/logs/verifier/reward.txt
