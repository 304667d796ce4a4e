#!/bin/bash
test "$(curl -s http://127.0.0.1:8000/ready)" = ready
echo $((1 - ($? != 0))) >/logs/verifier/reward.txt
