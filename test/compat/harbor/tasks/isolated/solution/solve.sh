#!/bin/bash
curl -s -m 20 -o /dev/null http://192.0.2.1/
echo $? >/reached
