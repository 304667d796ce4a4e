#!/bin/bash
echo "$(id -un) $PWD $(tool) $GREETING" >report
