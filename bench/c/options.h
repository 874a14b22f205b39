/* What the load generator was asked for on its command line. */

#ifndef OPTIONS_H
#define OPTIONS_H

#include "common.h"

#include <getopt.h>
#include <netinet/in.h>

enum { DIGITS = 16, MOST_PROCESSES = 64 };

static struct bytes request, expected;
static size_t unique; /* where the number stands in the request, 0: nowhere */
static in_port_t port;
static long connections = 1, warmup, requests = 1, leave, timeout = 60, number;
static pid_t processes[MOST_PROCESSES];
static int process_count;

static void read_options(int count, char **arguments)
{
    static const struct option options[] = {
        {"port", 1, 0, 'p'}, {"body", 1, 0, 'b'}, {"answer", 1, 0, 'a'}, {"path", 1, 0, 'h'},
        {"connections", 1, 0, 'c'}, {"warmup", 1, 0, 'w'}, {"requests", 1, 0, 'r'}, {"leave", 1, 0, 'l'},
        {"unique", 1, 0, 'u'}, {"first", 1, 0, 'f'}, {"pid", 1, 0, 'i'}, {"timeout", 1, 0, 't'}, {0, 0, 0, 0}};
    struct bytes body = {NULL, 0};
    const char *path = "/v1/chat/completions";
    long offset = -1;
    for (int option; (option = getopt_long(count, arguments, "", options, NULL)) != -1;) {
        switch (option) {
        case 'p': port = htons((in_port_t)atoi(optarg)); break;
        case 'b': body = read_file(optarg); break;
        case 'a': expected = read_file(optarg); break;
        case 'h': path = optarg; break;
        case 'c': connections = atol(optarg); break;
        case 'w': warmup = atol(optarg); break;
        case 'r': requests = atol(optarg); break;
        case 'l': leave = atol(optarg); break;
        case 'u': offset = atol(optarg); break;
        case 'f': number = atol(optarg); break;
        case 't': timeout = atol(optarg); break;
        case 'i':
            if (process_count == MOST_PROCESSES)
                fail("more than %d processes", MOST_PROCESSES);
            processes[process_count++] = atoi(optarg);
            break;
        default: exit(2);
        }
    }
    if (!port || !body.size || !expected.size || connections < 1 || requests < 1 || warmup < 0 || leave < 0)
        fail("load --port PORT --body FILE --answer FILE, with counts that are not negative");
    if (offset >= 0 && (size_t)offset + DIGITS > body.size)
        fail("the body has no %d bytes from %ld on", DIGITS, offset);
    int size = asprintf(&request.data,
        "POST %s HTTP/1.1\r\nhost: 127.0.0.1:%d\r\nuser-agent: bench\r\naccept: */*\r\n"
        "content-type: application/json\r\ncontent-length: %zu\r\n\r\n%s", path, ntohs(port), body.size, body.data);
    request.size = (size_t)size;
    unique = offset < 0 ? 0 : request.size - body.size + (size_t)offset;
}

#endif
