sticky init names > /dev/null && cd names
setsid twistd -n --pidfile= sticky --app app.py > log 2>&1 < /dev/null &
until [ -s state/proxy-token ] && [ -s state/url ]; do sleep 0.1; done
