#!/bin/bash
test "$(cat /app/b)" = 2
echo $((1 - ($? != 0))) >/logs/verifier/reward.txt
