#!/bin/bash
# A file of the agent that is no artifact is not here.
test "$(cat /app/result.txt)" = 42 && test ! -e /app/stays && test -e /secret
echo $((1 - ($? != 0))) >/logs/verifier/reward.txt
