/* A load generator: connections that ask again as soon as they are answered, and check every byte of every answer.

   load --port PORT --body FILE --answer FILE [--path PATH] [--connections N] [--warmup N] [--requests N]
        [--leave N] [--unique OFFSET] [--first NUMBER] [--pid PID]... [--timeout SECONDS]

   Each N-th request that is measured is left after the first bytes of its answer. With --unique, the sixteen bytes from
   there on are a number that no other request has. It prints one line of JSON; the processor time in it is that of the
   processes with these ids while requests were measured. Anything unexpected ends it with an error. */

#include "answer.h"
#include "common.h"
#include "options.h"
#include "times.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { READ_BYTES = 1 << 17, EVENTS = 512 };

struct client {
    int socket;
    bool waits; /* until it can write */
    bool leaves;
    size_t sent;
    char number[DIGITS + 1];
    double asked, first;
    struct answer answer;
};

static struct client *clients;
static int events_of;
static long left, open_requests, asked_requests, whole_count, first_count, left_count;
static bool measured;
static double *firsts, *wholes;

static void watch(struct client *client, int how, bool waits)
{
    struct epoll_event event = {waits ? EPOLLIN | EPOLLOUT : EPOLLIN, {.ptr = client}};
    client->waits = waits;
    if (epoll_ctl(events_of, how, client->socket, &event))
        fail("a socket cannot be watched: %s", strerror(errno));
}

static void connect_client(struct client *client)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1;
    client->socket = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(client->socket, (struct sockaddr *)&name, sizeof name))
        fail("the gateway takes no connection: %s", strerror(errno));
    setsockopt(client->socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(client->socket, F_SETFL, O_NONBLOCK);
    watch(client, EPOLL_CTL_ADD, false);
}

static int cut(struct iovec *parts, const char *data, size_t from, size_t until, size_t sent)
{
    if (sent >= until || from == until)
        return 0;
    size_t skipped = sent > from ? sent - from : 0;
    *parts = (struct iovec){(void *)(data + skipped), until - from - skipped};
    return 1;
}

static void send_request(struct client *client)
{
    struct iovec parts[3];
    size_t end = unique ? unique + DIGITS : 0, sent = client->sent;
    int count = cut(parts, request.data, 0, unique, sent);
    count += cut(parts + count, client->number, unique, end, sent);
    count += cut(parts + count, request.data + end, end, request.size, sent);
    ssize_t written = writev(client->socket, parts, count);
    if (written < 0 && errno != EAGAIN)
        fail("the gateway closed a connection: %s", strerror(errno));
    client->sent += written < 0 ? 0 : (size_t)written;
    bool waits = client->sent < request.size;
    if (waits != client->waits)
        watch(client, EPOLL_CTL_MOD, waits);
}

static void ask(struct client *client)
{
    if (!client->socket)
        connect_client(client);
    left--;
    open_requests++;
    asked_requests++;
    begin(&client->answer);
    client->sent = 0;
    client->first = 0;
    client->leaves = measured && leave && asked_requests % leave == 0;
    snprintf(client->number, sizeof client->number, "%0*ld", DIGITS, number++);
    client->asked = clock_seconds(CLOCK_MONOTONIC);
    send_request(client);
}

static void ask_again(struct client *client)
{
    open_requests--;
    if (left)
        ask(client);
}

static void reconnect(struct client *client)
{
    close(client->socket);
    connect_client(client);
}

static void take(struct client *client)
{
    static char data[READ_BYTES];
    bool rests = !client->sent || client->answer.stage == DONE;
    ssize_t size = recv(client->socket, data, sizeof data, 0);
    if (size < 0 && errno == EAGAIN)
        return;
    if (size <= 0 && rests) { /* which a gateway may close after a while */
        close(client->socket);
        client->socket = 0;
        return;
    }
    if (size < 0)
        fail("the gateway closed a connection: %s", strerror(errno));
    if (!size)
        fail("the gateway closed a connection: end of file, after %zu bytes of an answer", client->answer.taken);
    if (rests)
        show("nothing was asked", &client->answer, data, (size_t)size);
    if (take_answer(&client->answer, &expected, data, (size_t)size) < (size_t)size)
        show("more than it came", &client->answer, data, (size_t)size);
    double now = clock_seconds(CLOCK_MONOTONIC);
    if (!client->first && client->answer.taken) {
        client->first = now - client->asked;
        if (measured)
            firsts[first_count++] = client->first;
    }
    if (client->leaves && client->first) {
        left_count++; /* also if more has come in already */
        reconnect(client);
        ask_again(client);
    } else if (client->answer.stage == DONE) {
        if (measured)
            wholes[whole_count++] = now - client->asked;
        if (client->answer.last)
            reconnect(client);
        ask_again(client);
    }
}

static void handle(int milliseconds)
{
    struct epoll_event events[EVENTS];
    for (int index = 0, ready = epoll_wait(events_of, events, EVENTS, milliseconds); index < ready; index++) {
        struct client *client = events[index].data.ptr;
        if (events[index].events & EPOLLOUT)
            send_request(client);
        if (events[index].events & ~(uint32_t)EPOLLOUT)
            take(client);
    }
}

static void run(long count)
{
    left = count;
    asked_requests = 0;
    handle(0); /* of connections that were closed meanwhile */
    for (long index = 0; index < connections && left; index++)
        ask(&clients[index]);
    while (open_requests)
        handle(-1);
}

int main(int count, char **arguments)
{
    read_options(count, arguments);
    signal(SIGPIPE, SIG_IGN);
    end_after(timeout);
    open_many_files();
    events_of = epoll_create1(0);
    clients = allocate((size_t)connections * sizeof *clients);
    firsts = allocate((size_t)requests * sizeof *firsts);
    wholes = allocate((size_t)requests * sizeof *wholes);
    for (long index = 0; index < connections; index++)
        connect_client(&clients[index]);
    run(warmup);
    measured = true;
    double spent = processor_seconds(processes, process_count), began = clock_seconds(CLOCK_MONOTONIC);
    run(requests);
    double seconds = clock_seconds(CLOCK_MONOTONIC) - began;
    printf("{\"requests\": %ld, \"left\": %ld, \"seconds\": %.6f, \"processor_seconds\": %.9f", requests, left_count,
           seconds, processor_seconds(processes, process_count) - spent);
    print_times("first", firsts, first_count);
    print_times("whole", wholes, whole_count);
    printf("}\n");
    return 0;
}
