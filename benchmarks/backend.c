/* The program behind every proxy: one thread, one epoll loop, as little CPU a request as C allows.
 *
 *   backend PORT [--unix PATH] [--core N] [--delay MS]
 *
 * Serves on 127.0.0.1:PORT (0: not at all) and on a Unix socket if asked. `--core` pins it; `--delay` waits before it
 * listens, like a program that is slow to start. It answers
 *   GET /big?N       N bytes with a Content-Length
 *   GET /sse         an event every 5 ms that holds the monotonic clock in nanoseconds
 *   POST, PUT        reads the body (Content-Length only), then the small answer
 *   WebSocket        echoes every frame, unmasked; answers pings and closes
 *   anything else    200 with 128 bytes
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define MAX_HEAD 65536

enum kind { LISTENER, TICKER, CLIENT };

typedef struct client {
    enum kind kind; /* first: what epoll hands back is told apart by it */
    int fd, websocket, wants_out, listed;
    char *in; /* received, not yet used */
    size_t n, cap;
    char *out; /* to be sent, from `off` to `on` */
    size_t on, off, ocap;
    long long big;  /* bytes of a /big body still to send after `out` */
    long long skip; /* bytes of an upload still to read */
    struct client *next, *prev; /* among the /sse clients */
} client;

typedef struct { enum kind kind; int fd; } source;

static int ep;
static char fill[262144], sink[262144];
static client *listeners_of_events;
static char small[1024], small_close[1024];
static size_t small_n, small_close_n;

static void watch(client *c, int out) {
    if (out == c->wants_out) return;
    c->wants_out = out;
    struct epoll_event e = {.events = EPOLLIN | (out ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &e);
}

/* Send what is waiting. -1: the connection is gone. */
static int flush(client *c) {
    while (c->off < c->on) {
        ssize_t r = send(c->fd, c->out + c->off, c->on - c->off, MSG_NOSIGNAL);
        if (r < 0) {
            if (errno != EAGAIN) return -1;
            watch(c, 1);
            return 0;
        }
        c->off += r;
    }
    c->on = c->off = 0;
    if (c->ocap > 65536) {
        free(c->out);
        c->out = NULL;
        c->ocap = 0;
    }
    while (c->big > 0) {
        size_t k = c->big < (long long)sizeof fill ? (size_t)c->big : sizeof fill;
        ssize_t r = send(c->fd, fill, k, MSG_NOSIGNAL);
        if (r < 0) {
            if (errno != EAGAIN) return -1;
            watch(c, 1);
            return 0;
        }
        c->big -= r;
    }
    watch(c, 0);
    return 0;
}

static int put(client *c, const char *p, size_t n) {
    if (c->on == c->off && c->big <= 0) {
        ssize_t r = send(c->fd, p, n, MSG_NOSIGNAL);
        if (r < 0) {
            if (errno != EAGAIN) return -1;
            r = 0;
        }
        p += r;
        n -= r;
        if (!n) return 0;
    }
    if (c->on + n > c->ocap) {
        c->ocap = (c->on + n) * 2;
        c->out = realloc(c->out, c->ocap);
    }
    memcpy(c->out + c->on, p, n);
    c->on += n;
    watch(c, 1);
    return 0;
}

static void used(client *c, size_t k) {
    memmove(c->in, c->in + k, c->n - k);
    c->n -= k;
}

static void unmask(unsigned char *p, size_t n, const unsigned char *mask) {
    unsigned char eight[8];
    for (int i = 0; i < 8; i++) eight[i] = mask[i & 3];
    unsigned long long m, v;
    memcpy(&m, eight, 8);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        memcpy(&v, p + i, 8);
        v ^= m;
        memcpy(p + i, &v, 8);
    }
    for (; i < n; i++) p[i] ^= mask[i & 3];
}

/* Echo whole frames. The answer's header is as long as the request's without its mask, so it is written just before the payload. */
static int echo(client *c) {
    for (;;) {
        if (c->n < 6) return 0;
        unsigned char *b = (unsigned char *)c->in;
        size_t len = b[1] & 127, h = 2;
        if (len == 126) {
            if (c->n < 8) return 0;
            len = b[2] << 8 | b[3];
            h = 4;
        } else if (len == 127) {
            if (c->n < 14) return 0;
            len = 0;
            for (int i = 0; i < 8; i++) len = len << 8 | b[2 + i];
            h = 10;
        }
        size_t whole = h + (b[1] >> 7 ? 4 : 0);
        if (c->n < whole + len) {
            if (c->cap < whole + len) {
                c->cap = whole + len + 16;
                c->in = realloc(c->in, c->cap);
            }
            return 0;
        }
        unsigned char *payload = b + whole, opcode = b[0] & 15;
        if (whole > h) unmask(payload, len, b + h);
        if (opcode == 8) {
            put(c, "\x88\x02\x03\xe8", 4);
            return -1;
        }
        if (opcode != 10) {
            unsigned char header[10];
            memcpy(header, b, h);
            header[0] = opcode == 9 ? 0x8a : b[0];
            header[1] &= 127;
            memmove(payload - h, header, h);
            if (put(c, (char *)payload - h, h + len)) return -1;
        }
        used(c, whole + len);
    }
}

static char *value_of(char *head, const char *name) {
    char *p = strcasestr(head, name);
    if (!p) return NULL;
    p += strlen(name);
    while (*p == ' ') p++;
    return p;
}

static int accept_websocket(client *c, const char *key) {
    char text[128];
    unsigned char digest[20];
    char answer[64], out[300];
    size_t i = 0;
    while (key[i] > ' ' && i < 60) {
        text[i] = key[i];
        i++;
    }
    strcpy(text + i, "258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    SHA1((unsigned char *)text, strlen(text), digest);
    EVP_EncodeBlock((unsigned char *)answer, digest, 20);
    int n = snprintf(out, sizeof out,
                     "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                     "Sec-WebSocket-Accept: %s\r\n\r\n", answer);
    c->websocket = 1;
    return put(c, out, n);
}

static int start_events(client *c) {
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
                               "Transfer-Encoding: chunked\r\n\r\n";
    c->listed = 1;
    c->next = listeners_of_events;
    if (c->next) c->next->prev = c;
    listeners_of_events = c;
    return put(c, head, sizeof head - 1);
}

/* Answer every request that has come whole. -1: close. */
static int serve(client *c) {
    for (;;) {
        if (c->websocket) return echo(c);
        if (c->skip) {
            size_t k = c->n < (size_t)c->skip ? c->n : (size_t)c->skip;
            used(c, k);
            c->skip -= k;
            if (c->skip) return 0;
            if (put(c, small, small_n)) return -1;
        }
        if (!c->n || c->listed) return 0;
        char *end = memmem(c->in, c->n, "\r\n\r\n", 4);
        if (!end) return c->n > MAX_HEAD ? -1 : 0;
        size_t head_n = end + 4 - c->in;
        end[2] = 0;
        char *head = c->in, *v;
        if (!strncmp(head, "POST ", 5) || !strncmp(head, "PUT ", 4)) {
            if (value_of(head, "\ntransfer-encoding:")) {
                static const char refusal[] = "HTTP/1.1 411 Length Required\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                put(c, refusal, sizeof refusal - 1);
                return -1;
            }
            v = value_of(head, "\ncontent-length:");
            c->skip = v ? atoll(v) : 0;
            used(c, head_n);
            if (!c->skip && put(c, small, small_n)) return -1;
        } else if (!strncmp(head, "GET /big?", 9)) {
            char out[200];
            long long size = atoll(head + 9);
            int n = snprintf(out, sizeof out,
                             "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %lld\r\n\r\n", size);
            if (put(c, out, n)) return -1;
            used(c, head_n);
            c->big = size;
            if (flush(c)) return -1;
        } else if (!strncmp(head, "GET /sse", 8)) {
            used(c, head_n);
            return start_events(c);
        } else if ((v = value_of(head, "\nsec-websocket-key:")) && value_of(head, "\nupgrade:")) {
            if (accept_websocket(c, v)) return -1;
            used(c, head_n);
        } else if (strstr(head, " HTTP/1.0\r\n") || value_of(head, "\nconnection: close")) {
            put(c, small_close, small_close_n);
            shutdown(c->fd, SHUT_WR);
            return -1;
        } else {
            if (put(c, small, small_n)) return -1;
            used(c, head_n);
        }
    }
}

static int readable(client *c) {
    for (;;) {
        if (!c->n && c->skip > 65536) { /* an upload: all but its last bytes need no look */
            size_t k = c->skip - 1 < (long long)sizeof sink ? (size_t)c->skip - 1 : sizeof sink;
            ssize_t r = recv(c->fd, sink, k, 0);
            if (r <= 0) return r < 0 && errno == EAGAIN ? 0 : -1;
            c->skip -= r;
            continue;
        }
        if (c->cap < 4096) {
            c->cap = 4096;
            c->in = realloc(c->in, c->cap);
        }
        if (c->n == c->cap) {
            c->cap *= 2;
            c->in = realloc(c->in, c->cap);
        }
        size_t room = c->cap - c->n;
        ssize_t r = recv(c->fd, c->in + c->n, room, 0);
        if (r <= 0) return r < 0 && errno == EAGAIN ? 0 : -1;
        c->n += r;
        if (serve(c)) return -1;
        if ((size_t)r < room) break;
    }
    if (!c->n && c->websocket) { /* idle WebSockets by the thousand should cost nothing here */
        free(c->in);
        c->in = NULL;
        c->cap = 0;
    }
    return 0;
}

static void drop(client *c) {
    if (c->listed) {
        if (c->prev) c->prev->next = c->next;
        else listeners_of_events = c->next;
        if (c->next) c->next->prev = c->prev;
    }
    close(c->fd);
    free(c->in);
    free(c->out);
    free(c);
}

static void newcomers(int listener) {
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), one = 1;
        if (fd < 0) return;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        client *c = calloc(1, sizeof *c);
        c->kind = CLIENT;
        c->fd = fd;
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
    }
}

static void tick(int timer) {
    unsigned long long expirations;
    if (read(timer, &expirations, sizeof expirations) < 0) return;
    for (client *c = listeners_of_events; c; c = c->next) {
        struct timespec t;
        char event[64], out[128];
        clock_gettime(CLOCK_MONOTONIC, &t);
        int k = snprintf(event, sizeof event, "data: %lld\n\n", t.tv_sec * 1000000000LL + t.tv_nsec);
        int n = snprintf(out, sizeof out, "%x\r\n%s\r\n", k, event);
        put(c, out, n); /* a client that is gone shows itself to epoll */
    }
}

static void listen_on(source *s, int fd, const struct sockaddr *address, socklen_t size) {
    if (bind(fd, address, size) || listen(fd, 16384)) {
        perror("backend: bind");
        exit(1);
    }
    s->kind = LISTENER;
    s->fd = fd;
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = s};
    epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
}

static void prepare(void) {
    memset(fill, 'x', sizeof fill);
    static const char form[] = "HTTP/1.1 200 OK\r\nServer: tiny\r\nDate: Sun, 29 Nov 2026 20:30:00 GMT\r\n"
                               "Content-Type: text/plain; charset=utf-8\r\nCache-Control: no-store\r\nContent-Length: 128\r\n%s\r\n%.128s";
    small_n = snprintf(small, sizeof small, form, "", fill);
    small_close_n = snprintf(small_close, sizeof small_close, form, "Connection: close\r\n", fill);
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: backend PORT [--unix PATH] [--core N] [--delay MS]\n");
        return 2;
    }
    const char *path = NULL;
    for (int i = 2; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--unix")) path = argv[i + 1];
        if (!strcmp(argv[i], "--delay")) usleep(atoi(argv[i + 1]) * 1000);
        if (!strcmp(argv[i], "--core")) {
            cpu_set_t set;
            CPU_ZERO(&set);
            CPU_SET(atoi(argv[i + 1]), &set);
            sched_setaffinity(0, sizeof set, &set);
        }
    }
    signal(SIGPIPE, SIG_IGN);
    prepare();
    ep = epoll_create1(EPOLL_CLOEXEC);
    static source tcp, local, ticker;
    if (atoi(argv[1])) {
        int s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
        setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        listen_on(&tcp, s, (void *)&a, sizeof a);
    }
    if (path) {
        int s = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        struct sockaddr_un u = {.sun_family = AF_UNIX};
        strncpy(u.sun_path, path, sizeof u.sun_path - 1);
        unlink(path);
        listen_on(&local, s, (void *)&u, sizeof u);
    }
    ticker.kind = TICKER;
    ticker.fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    struct itimerspec every = {{0, 5000000}, {0, 5000000}};
    timerfd_settime(ticker.fd, 0, &every, NULL);
    struct epoll_event te = {.events = EPOLLIN, .data.ptr = &ticker};
    epoll_ctl(ep, EPOLL_CTL_ADD, ticker.fd, &te);
    struct epoll_event ready[512];
    for (;;) {
        int n = epoll_wait(ep, ready, 512, -1);
        for (int i = 0; i < n; i++) {
            source *s = ready[i].data.ptr;
            if (s->kind == LISTENER) newcomers(s->fd);
            else if (s->kind == TICKER) tick(s->fd);
            else {
                client *c = ready[i].data.ptr;
                unsigned what = ready[i].events;
                int gone = (what & EPOLLERR) != 0;
                if (!gone && (what & EPOLLOUT)) gone = flush(c);
                if (!gone && (what & (EPOLLIN | EPOLLHUP))) gone = readable(c);
                if (gone) drop(c);
            }
        }
    }
}
