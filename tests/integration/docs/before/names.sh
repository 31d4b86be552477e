sticky init names > /dev/null && cd names
setsid twistd -n --pidfile= sticky --app app.py > log 2>&1 < /dev/null &
until [ -s state/proxy-token ] && [ -s state/url ]; do sleep 0.1; done
URL=http://localhost:8080 PROXY_AUTH_TOKEN=$(cat state/proxy-token)
