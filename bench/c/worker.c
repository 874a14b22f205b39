/* A mock worker: answers by rules, under many addresses of loopback, on one core.

   worker RULES ADDRESSES

   It listens on one port of 127.0.0.1, 127.0.0.2, and so on, and prints the port once it does. Streams have a pace, or
   are written an event at a time as fast as they are taken. Each address answers a GET of /counts with how often each
   rule was taken there, in a line, and the last body that came to it. */

#include "common.h"
#include "connections.h"
#include "places.h"
#include "rules.h"
#include "wheel.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

enum { FIRST_ROOM = 4096, LARGEST_BYTES = 16 << 20, EVENTS = 512 };

/* Answers the request that is in the buffer, once it is there. */
static void answer_next(struct connection *connection)
{
    struct head head;
    char *data = connection->in;
    data[connection->filled] = 0;
    if (!read_head(data, connection->filled, &head))
        return;
    size_t length = head.length < 0 ? 0 : (size_t)head.length, all = head.size + length;
    if (connection->filled < all)
        return;
    char *path = memchr(data, ' ', head.size), kept = data[all];
    path = path ? path + 1 : data;
    data[all] = 0;
    const struct rule *rule = head.chunked ? NULL : choose(path, strcspn(path, " ?\r"), data + head.size, length);
    data[all] = kept;
    bool asked = !strncmp(path, "/counts ", 8);
    if (rule && !asked)
        count(connection->place, rule, data + head.size, length);
    connection->filled -= all;
    memmove(data, data + all, connection->filled);
    connection->last = head.last || !rule || asked;
    if (asked) {
        if (put(connection, tell_counts(connection->place)))
            go_on(connection);
        return;
    }
    if (rule && rule->tokens) {
        connection->streamed = rule;
        connection->left = rule->tokens;
        put_token(&connection->link);
        return;
    }
    static char none[] = "HTTP/1.1 404 Mock\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    if (put(connection, rule ? rule->first : (struct bytes){none, sizeof none - 1}))
        go_on(connection);
}

static void take(struct connection *connection)
{
    if (connection->filled + 1 >= connection->room) {
        connection->room = connection->room ? connection->room * 4 : FIRST_ROOM;
        connection->in = realloc(connection->in, connection->room);
        if (!connection->in || connection->room > LARGEST_BYTES)
            fail("a request is too large");
    }
    ssize_t size = recv(connection->socket, connection->in + connection->filled,
                        connection->room - connection->filled - 1, 0);
    if (size < 0 && errno == EAGAIN)
        return;
    if (size <= 0) {
        drop(connection);
        return;
    }
    connection->filled += (size_t)size;
    if (!connection->streamed && !connection->rest.size)
        answer_next(connection);
}

static void welcome(struct connection *listener)
{
    for (int socket; (socket = accept4(listener->socket, NULL, NULL, SOCK_NONBLOCK)) >= 0;) {
        struct connection *connection = allocate(sizeof *connection);
        int on = 1;
        setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        connection->socket = socket;
        connection->place = listener->place;
        watch(connection, EPOLL_CTL_ADD, EPOLLIN);
    }
}

static in_port_t listen_on(uint32_t address, in_port_t port)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = htonl(address)};
    socklen_t size = sizeof name;
    struct connection *listener = allocate(sizeof *listener);
    int on = 1;
    listener->listens = true;
    listener->place = allocate(sizeof *listener->place);
    listener->socket = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(listener->socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener->socket, (struct sockaddr *)&name, size) || listen(listener->socket, 4096))
        fail("%s: %s", inet_ntoa(name.sin_addr), strerror(errno));
    watch(listener, EPOLL_CTL_ADD, EPOLLIN);
    getsockname(listener->socket, (struct sockaddr *)&name, &size);
    return name.sin_port;
}

static void handle(struct epoll_event *event)
{
    struct connection *connection = event->data.ptr;
    if (connection == &timer_connection) {
        uint64_t ticks;
        if (read(timer, &ticks, sizeof ticks) < 0)
            return; /* it has stopped */
    } else if (connection->listens) {
        welcome(connection);
    } else if (event->events & EPOLLOUT) {
        if (put(connection, connection->rest))
            go_on(connection);
    } else {
        take(connection);
    }
}

int main(int count, char **arguments)
{
    if (count != 3 || atoi(arguments[2]) < 1)
        fail("worker RULES ADDRESSES");
    read_rules(arguments[1]);
    open_many_files();
    events_of = epoll_create1(0);
    clear(&eager);
    make_wheel();
    timer_connection.socket = timer;
    watch(&timer_connection, EPOLL_CTL_ADD, EPOLLIN);
    in_port_t port = 0;
    for (uint32_t address = 0; address < (uint32_t)atoi(arguments[2]); address++)
        port = listen_on(INADDR_LOOPBACK + address, port);
    printf("%d\n", ntohs(port));
    fflush(stdout);
    for (;;) {
        struct epoll_event events[EVENTS];
        int ready = epoll_wait(events_of, events, EVENTS, is_in_list(&eager) ? 0 : -1);
        for (int index = 0; index < ready; index++)
            handle(&events[index]);
        /* only now, because what is told here may be about a connection that these drop */
        put_eager_tokens();
        turn_wheel(put_token);
    }
}
