/* Reads one answer as it comes in, and compares its body with the expected one, byte by byte. */

#ifndef ANSWER_H
#define ANSWER_H

#include "common.h"

#include <ctype.h>

enum { LARGEST_HEAD = 16384, SHOWN = 200 };

enum stage { HEAD, SIZE, LINE, BODY, AFTER, TRAILER, DONE };

struct answer {
    enum stage stage;
    char head[LARGEST_HEAD];
    size_t filled;
    bool chunked, last;
    size_t left;  /* of the body, or of a chunk */
    size_t taken; /* of the body, as expected */
};

static void __attribute__((noreturn)) show(const char *reason, const struct answer *answer, const char *data,
                                           size_t size)
{
    fprintf(stderr, "the answer is not the worker's: %s, after %zu bytes of its body: ", reason, answer->taken);
    for (size_t index = 0; index < size && index < SHOWN; index++)
        fprintf(stderr, isprint((unsigned char)data[index]) ? "%c" : "\\x%02x", (unsigned char)data[index]);
    fail(size ? "" : "nothing");
}

static void begin(struct answer *answer)
{
    answer->stage = HEAD;
    answer->filled = answer->left = answer->taken = 0;
}

/* Takes as much of the head as there is; returns what was taken of `size`. */
static size_t take_head(struct answer *answer, const char *data, size_t size)
{
    struct head head;
    size_t before = answer->filled, room = LARGEST_HEAD - 1 - before, taken = size < room ? size : room;
    memcpy(answer->head + before, data, taken);
    answer->filled += taken;
    answer->head[answer->filled] = 0;
    if (!read_head(answer->head, answer->filled, &head)) {
        if (taken < size)
            show("it has no end of its head", answer, answer->head, answer->filled);
        return taken;
    }
    if (strncmp(answer->head, "HTTP/1.1 200", 12))
        show("its status", answer, answer->head, answer->filled);
    if (!head.chunked && head.length < 0)
        show("it does not say where it ends", answer, answer->head, answer->filled);
    answer->last = head.last;
    answer->chunked = head.chunked;
    answer->left = head.chunked ? 0 : (size_t)head.length;
    answer->stage = head.chunked ? SIZE : answer->left ? BODY : DONE;
    return head.size - before;
}

/* A character of what stands around chunks. */
static void take_mark(struct answer *answer, char mark)
{
    static const char digits[] = "0123456789abcdef";
    const char *digit = mark ? strchr(digits, tolower((unsigned char)mark)) : NULL;
    if (answer->stage == SIZE && digit)
        answer->left = answer->left * 16 + (size_t)(digit - digits);
    else if (answer->stage == SIZE)
        answer->stage = LINE;
    if (mark != '\n')
        return;
    if (answer->stage == LINE)
        answer->stage = answer->left ? BODY : TRAILER;
    else
        answer->stage = answer->stage == AFTER ? SIZE : DONE;
}

/* Takes what came in; returns how much of it belongs to this answer. */
static size_t take_answer(struct answer *answer, const struct bytes *expected, const char *data, size_t size)
{
    size_t at = 0;
    while (at < size && answer->stage != DONE) {
        if (answer->stage == HEAD) {
            at += take_head(answer, data + at, size - at);
        } else if (answer->stage == BODY) {
            size_t part = size - at < answer->left ? size - at : answer->left;
            if (part > expected->size - answer->taken)
                show("it is too long", answer, data + at, part);
            if (memcmp(data + at, expected->data + answer->taken, part))
                show("it differs", answer, data + at, part);
            at += part;
            answer->taken += part;
            answer->left -= part;
            if (!answer->left)
                answer->stage = answer->chunked ? AFTER : DONE;
        } else {
            take_mark(answer, data[at++]);
        }
    }
    if (answer->stage == DONE && answer->taken < expected->size)
        show("it is too short", answer, expected->data + answer->taken, 0);
    return at;
}

#endif
