echo 'console.log(6 * 7)' >script.js
echo data >input.txt
