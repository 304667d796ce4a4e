#!/bin/bash
# 7: refused at once. Without the rule, the attempt ends with its time: 28.
test "$(cat /reached)" = 7
echo $((1 - ($? != 0))) >/logs/verifier/reward.txt
