/* The connections of the mock worker, and what is written to them: whole answers, and streams token by token. */

#ifndef CONNECTIONS_H
#define CONNECTIONS_H

#include "common.h"
#include "places.h"
#include "rules.h"
#include "wheel.h"

#include <stddef.h>
#include <sys/epoll.h>
#include <sys/socket.h>

struct connection {
    struct link link; /* first, so that a link is a connection */
    int socket;
    bool listens, last, ticks;
    struct place *place;
    char *in;
    size_t filled, room;
    struct bytes rest;           /* of an answer that was not taken at once */
    const struct rule *streamed;
    long left;                   /* tokens */
};

static int events_of;
static struct link eager; /* streams without a pace, that can write */
static struct connection timer_connection;

static void watch(struct connection *connection, int how, uint32_t what)
{
    struct epoll_event event = {what, {.ptr = connection}};
    if (epoll_ctl(events_of, how, connection->socket, &event))
        fail("a socket cannot be watched: %s", strerror(errno));
}

static void leave_lists(struct connection *connection)
{
    if (!is_in_list(&connection->link))
        return;
    if (connection->ticks)
        stop_waiting(&connection->link);
    else
        take_out(&connection->link);
}

static void drop(struct connection *connection)
{
    leave_lists(connection);
    close(connection->socket);
    free(connection->in);
    free(connection);
}

/* Writes what can be written; false if the connection was dropped. */
static bool put(struct connection *connection, struct bytes piece)
{
    ssize_t sent = send(connection->socket, piece.data, piece.size, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) {
        drop(connection);
        return false;
    }
    size_t taken = sent < 0 ? 0 : (size_t)sent;
    bool waited = connection->rest.size > 0;
    connection->rest = (struct bytes){piece.data + taken, piece.size - taken};
    if (waited != (connection->rest.size > 0))
        watch(connection, EPOLL_CTL_MOD, waited ? EPOLLIN : EPOLLIN | EPOLLOUT);
    return true;
}

static void answer_next(struct connection *connection);

/* Goes on once all was written so far. */
static void go_on(struct connection *connection)
{
    if (connection->rest.size)
        return;
    if (connection->streamed) {
        connection->ticks = connection->streamed->microseconds > 0;
        if (connection->ticks)
            wait_for(&connection->link, connection->streamed->microseconds);
        else
            append(&eager, &connection->link);
    } else if (connection->last) {
        drop(connection);
    } else if (connection->filled) {
        answer_next(connection);
    }
}

static void put_token(struct link *link)
{
    struct connection *connection = (struct connection *)link;
    const struct rule *rule = connection->streamed;
    struct bytes piece = connection->left == rule->tokens ? rule->first : rule->next;
    if (!--connection->left) {
        piece = rule->last;
        connection->streamed = NULL;
    }
    if (put(connection, piece))
        go_on(connection);
}

static void put_eager_tokens(void)
{
    struct link turn;
    append(&eager, &turn); /* who stands behind it comes in the next turn */
    while (eager.after != &turn) {
        struct link *link = eager.after;
        take_out(link);
        put_token(link);
    }
    take_out(&turn);
}

#endif
