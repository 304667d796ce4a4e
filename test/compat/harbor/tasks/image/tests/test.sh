#!/bin/bash
test "$(cat /home/worker/report)" = "worker /home/worker tool hello from the image" && test "$(stat -c %U /home/worker/report)" = worker
echo $((1 - ($? != 0))) >/logs/verifier/reward.txt
