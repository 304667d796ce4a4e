#!/bin/bash
# 7: refused. The tests have a network again.
test "$(cat /reached)" = 7
echo $((1 - ($? != 0))) >/logs/verifier/reward.txt
