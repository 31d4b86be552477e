sticky init sdk > /dev/null && cd sdk
sed -i 's/sticky.App("counter")/sticky.App("my-app")/' app.py
setsid twistd -n --pidfile= sticky --app app.py > log 2>&1 < /dev/null &
until [ -s state/proxy-token ] && [ -s state/url ]; do sleep 0.1; done
