/* The load that wrk cannot make: WebSockets, idle and stopped clients, bulk, events. One thread, one core.
 *
 *   load ws PORT CONNECTIONS SIZE SECONDS     each connection sends a message of SIZE bytes, awaits its echo, sends the next
 *   load idle PORT CONNECTIONS                WebSockets that are opened and say nothing
 *   load handshakes PORT COUNT                opens WebSockets one after another, each reset as soon as it stands
 *   load down PORT BYTES COUNT                GET /big?BYTES, COUNT times on one connection
 *   load up PORT BYTES COUNT                  POST of BYTES, COUNT times on one connection
 *   load events PORT COUNT                    COUNT events of /sse, and how old each was when it came
 *   load stopped PORT CONNECTIONS BYTES       clients that ask for /big?BYTES and never read
 *
 * In every mode it says "ready" when its connections stand, waits for a line on stdin, does its work, prints one line of
 * JSON, and keeps its connections until stdin ends: whoever started it can look at the proxy before and after the work
 * alone. The environment variable FIELDS holds further header lines, each ended by \r\n. Times in the output are microseconds.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define MAX_SAMPLES 20000000
#define PER_ADDRESS 2000 /* connections from one source address: proxies limit those, and ports are finite */

typedef struct { int fd, wants_out; size_t got, sent; long long since; } socket_of_ours;

static char buffer[262144];
static const char *fields;
static int port;

static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void fail(const char *what, const char *detail, int n) {
    fprintf(stderr, "load: %s: %.*s\n", what, n, detail);
    exit(1);
}

static void must(int ok, const char *what) {
    if (!ok) fail(what, strerror(errno), 200);
}

static int connected(int nth) {
    int s = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK + nth / PER_ADDRESS)};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {20, 0};
    must(s >= 0, "socket");
    setsockopt(s, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
    must(!bind(s, (void *)&from, sizeof from), "bind");
    must(!connect(s, (void *)&to, sizeof to), "connect");
    setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return s;
}

static void send_all(int s, const char *p, size_t n) {
    while (n) {
        ssize_t r = send(s, p, n, MSG_NOSIGNAL);
        must(r > 0, "send");
        p += r;
        n -= r;
    }
}

/* Reads a head into `buffer` and returns its length; *n is how much there is in all. */
static size_t read_head(int s, size_t *n, const char *status) {
    *n = 0;
    for (;;) {
        ssize_t r = recv(s, buffer + *n, sizeof buffer - *n, 0);
        if (r <= 0) fail("connection ended before its answer", buffer, *n);
        *n += r;
        char *end = memmem(buffer, *n, "\r\n\r\n", 4);
        if (!end) continue;
        if (*n < 12 || memcmp(buffer + 9, status, 3)) fail("unexpected answer", buffer, *n < 400 ? (int)*n : 400);
        return end + 4 - buffer;
    }
}

static void shake_hands(int s) {
    char head[4096];
    size_t n = snprintf(head, sizeof head,
                        "GET /ws HTTP/1.1\r\nHost: localhost:%d\r\nUser-Agent: load/1\r\n%sUpgrade: websocket\r\nConnection: Upgrade\r\n"
                        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n", port, fields);
    send_all(s, head, n);
    size_t got, end = read_head(s, &got, "101");
    if (end != got) fail("bytes after the handshake", buffer, got < 400 ? (int)got : 400);
}

static int by_size(const void *a, const void *b) {
    long long x = *(long long *)a, y = *(long long *)b;
    return x < y ? -1 : x > y;
}

static double percentile(long long *sorted, size_t n, double p) {
    return n ? sorted[(size_t)(n * p) < n ? (size_t)(n * p) : n - 1] / 1e3 : 0;
}

static void begin(void) {
    puts("ready");
    fflush(stdout);
    if (!fgets(buffer, sizeof buffer, stdin)) exit(0);
}

static int end(void) {
    fflush(stdout);
    while (fgets(buffer, sizeof buffer, stdin)) continue;
    return 0;
}

static char *frame(size_t size, size_t *n) {
    char *f = malloc(size + 16);
    size_t h = size < 126 ? 2 : size < 65536 ? 4 : 10;
    f[0] = (char)0x82;
    f[1] = (char)(0x80 | (h == 2 ? size : h == 4 ? 126 : 127));
    for (size_t i = 2; i < h; i++) f[i] = size >> (8 * (h - 1 - i));
    memcpy(f + h, "\x12\x34\x56\x78", 4);
    for (size_t i = 0; i < size; i++) f[h + 4 + i] = ('a' + i % 26) ^ f[h + (i & 3)];
    *n = h + 4 + size;
    return f;
}

static int ep;

static void interest(socket_of_ours *c, int out) {
    if (c->wants_out == out) return;
    c->wants_out = out;
    struct epoll_event e = {.events = EPOLLIN | (out ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &e);
}

static void push(socket_of_ours *c, const char *message, size_t n) {
    while (c->sent < n) {
        ssize_t r = send(c->fd, message + c->sent, n - c->sent, MSG_NOSIGNAL);
        if (r < 0) {
            must(errno == EAGAIN, "send");
            break;
        }
        c->sent += r;
    }
    interest(c, c->sent < n);
}

static int ws(int connections, size_t size, double seconds) {
    size_t n, want = size + (size < 126 ? 2 : size < 65536 ? 4 : 10), count = 0, samples = 0;
    char *message = frame(size, &n);
    socket_of_ours *all = calloc(connections, sizeof *all);
    long long *round_trips = malloc(MAX_SAMPLES * sizeof *round_trips);
    ep = epoll_create1(0);
    for (int i = 0; i < connections; i++) {
        all[i].fd = connected(0);
        shake_hands(all[i].fd);
        fcntl(all[i].fd, F_SETFL, O_NONBLOCK);
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = &all[i]};
        epoll_ctl(ep, EPOLL_CTL_ADD, all[i].fd, &e);
    }
    begin();
    long long start = now(), t = start, stop = start + (long long)(seconds * 1e9);
    for (int i = 0; i < connections; i++) {
        all[i].since = now();
        push(&all[i], message, n);
    }
    struct epoll_event ready[512];
    while (t < stop) {
        int k = epoll_wait(ep, ready, 512, 100);
        for (int i = 0; i < k; i++) {
            socket_of_ours *c = ready[i].data.ptr;
            if (ready[i].events & EPOLLOUT) push(c, message, n);
            if (!(ready[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))) continue;
            ssize_t r = recv(c->fd, buffer, sizeof buffer, 0);
            if (r < 0 && errno == EAGAIN) continue;
            if (r <= 0) fail("WebSocket ended", "", 0);
            c->got += r;
            if (c->got < want) continue;
            long long came = now();
            if (samples < MAX_SAMPLES) round_trips[samples++] = came - c->since;
            count++;
            c->got -= want;
            c->sent = 0;
            c->since = came;
            push(c, message, n);
        }
        t = now();
    }
    qsort(round_trips, samples, sizeof *round_trips, by_size);
    printf("{\"count\": %zu, \"seconds\": %.6f, \"p50\": %.2f, \"p99\": %.2f}\n", count, (t - start) / 1e9,
           percentile(round_trips, samples, 0.5), percentile(round_trips, samples, 0.99));
    return end();
}

static int idle(int connections) {
    for (int i = 0; i < connections; i++) shake_hands(connected(i));
    begin();
    printf("{\"count\": %d}\n", connections);
    return end();
}

static int handshakes(int count) {
    long long *times = malloc(count * sizeof *times);
    struct linger reset = {1, 0};
    begin();
    for (int i = 0; i < count; i++) {
        long long t = now();
        int s = connected(0);
        shake_hands(s);
        times[i] = now() - t;
        setsockopt(s, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        close(s);
    }
    qsort(times, count, sizeof *times, by_size);
    printf("{\"count\": %d, \"p50\": %.2f, \"p99\": %.2f}\n", count, percentile(times, count, 0.5), percentile(times, count, 0.99));
    return end();
}

static int down(long long bytes, int count) {
    char head[4096];
    int s = connected(0);
    size_t n = snprintf(head, sizeof head, "GET /big?%lld HTTP/1.1\r\nHost: localhost:%d\r\n%s\r\n", bytes, port, fields);
    begin();
    long long start = now();
    for (int i = 0; i < count; i++) {
        size_t got;
        send_all(s, head, n);
        size_t h = read_head(s, &got, "200");
        buffer[h - 1] = 0;
        if (strcasestr(buffer, "transfer-encoding")) fail("a chunked answer", buffer, h);
        for (long long left = bytes - (got - h); left > 0;) {
            ssize_t r = recv(s, buffer, sizeof buffer, 0);
            if (r <= 0) fail("download ended early", "", 0);
            left -= r;
        }
    }
    printf("{\"count\": %d, \"seconds\": %.6f}\n", count, (now() - start) / 1e9);
    return end();
}

static int up(long long bytes, int count) {
    char head[4096];
    int s = connected(0);
    size_t n = snprintf(head, sizeof head,
                        "POST /up HTTP/1.1\r\nHost: localhost:%d\r\n%sContent-Type: application/octet-stream\r\nContent-Length: %lld\r\n\r\n",
                        port, fields, bytes);
    begin();
    long long start = now();
    for (int i = 0; i < count; i++) {
        size_t got;
        send_all(s, head, n);
        for (long long left = bytes; left > 0;) {
            size_t k = left < (long long)sizeof buffer ? (size_t)left : sizeof buffer;
            send_all(s, buffer, k);
            left -= k;
        }
        size_t h = read_head(s, &got, "200");
        while (got < h + 128) {
            ssize_t r = recv(s, buffer + got, sizeof buffer - got, 0);
            if (r <= 0) fail("answer to the upload ended early", "", 0);
            got += r;
        }
    }
    printf("{\"count\": %d, \"seconds\": %.6f}\n", count, (now() - start) / 1e9);
    return end();
}

static int events(int count) {
    char head[4096];
    int s = connected(0), k = 0;
    long long *ages = malloc(count * sizeof *ages);
    size_t n = snprintf(head, sizeof head, "GET /sse HTTP/1.1\r\nHost: localhost:%d\r\n%sAccept: text/event-stream\r\n\r\n", port, fields);
    begin();
    send_all(s, head, n);
    while (k < count) {
        ssize_t r = recv(s, buffer, sizeof buffer - 1, 0);
        long long t = now();
        if (r <= 0) fail("events ended", "", 0);
        buffer[r] = 0;
        if (!k && strncmp(buffer + 9, "200", 3) && !strstr(buffer, "data: ")) fail("unexpected answer", buffer, r < 400 ? (int)r : 400);
        for (char *p = buffer; (p = strstr(p, "data: ")) && k < count; p += 6) ages[k++] = t - atoll(p + 6);
    }
    qsort(ages, k, sizeof *ages, by_size);
    printf("{\"count\": %d, \"p50\": %.2f, \"p99\": %.2f}\n", k, percentile(ages, k, 0.5), percentile(ages, k, 0.99));
    return end();
}

static int stopped(int connections, long long bytes) {
    char head[4096];
    int *all = malloc(connections * sizeof *all), room = 65536;
    size_t n = snprintf(head, sizeof head, "GET /big?%lld HTTP/1.1\r\nHost: localhost:%d\r\n%s\r\n", bytes, port, fields);
    for (int i = 0; i < connections; i++) {
        all[i] = connected(i);
        setsockopt(all[i], SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    }
    begin();
    for (int i = 0; i < connections; i++) send_all(all[i], head, n);
    for (int i = 0; i < connections; i++) must(recv(all[i], buffer, 9, 0) == 9 && !memcmp(buffer, "HTTP/1.1 ", 9), "answer");
    printf("{\"count\": %d}\n", connections);
    return end();
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: load MODE PORT ARGUMENTS\n");
        return 2;
    }
    fields = getenv("FIELDS");
    if (!fields) fields = "";
    port = atoi(argv[2]);
    const char *mode = argv[1];
    long long a = atoll(argv[3]), b = argc > 4 ? atoll(argv[4]) : 1;
    if (!strcmp(mode, "ws") && argc > 5) return ws(a, b, atof(argv[5]));
    if (!strcmp(mode, "idle")) return idle(a);
    if (!strcmp(mode, "handshakes")) return handshakes(a);
    if (!strcmp(mode, "down")) return down(a, b);
    if (!strcmp(mode, "up")) return up(a, b);
    if (!strcmp(mode, "events")) return events(a);
    if (!strcmp(mode, "stopped") && argc > 4) return stopped(a, b);
    fprintf(stderr, "load: no such mode, or arguments are missing\n");
    return 2;
}
