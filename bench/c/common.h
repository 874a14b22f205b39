/* What the mock worker and the load generator share: errors, limits, the clock, files, and heads of HTTP messages. */

#ifndef COMMON_H
#define COMMON_H

#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

struct bytes {
    char *data;
    size_t size;
};

/* What a head says of its body. */
struct head {
    size_t size;     /* with the empty line */
    long length;     /* of the body, -1: not told */
    bool chunked;
    bool last;       /* the connection is closed after the answer */
};

static void __attribute__((noreturn, format(printf, 1, 2))) fail(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fputc('\n', stderr);
    exit(1);
}

static void open_many_files(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static double clock_seconds(clockid_t clock)
{
    struct timespec time;
    if (clock_gettime(clock, &time))
        fail("a clock cannot be read: %s", strerror(errno));
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void *allocate(size_t size)
{
    void *memory = calloc(1, size);
    if (!memory)
        fail("no memory is left for %zu bytes", size);
    return memory;
}

static struct bytes read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END))
        fail("%s cannot be read: %s", path, strerror(errno));
    struct bytes content = {NULL, (size_t)ftell(file)};
    content.data = allocate(content.size + 1); /* so that it ends like a string */
    rewind(file);
    if (fread(content.data, 1, content.size, file) != content.size)
        fail("%s cannot be read: %s", path, strerror(errno));
    fclose(file);
    return content;
}

/* The value of a header line with that name, which is lower case and ends in a colon; NULL if it has another. */
static const char *header_value(const char *line, const char *name)
{
    size_t length = strlen(name);
    if (strncasecmp(line, name, length))
        return NULL;
    return line + length + strspn(line + length, " \t");
}

/* Reads a head that begins at `data`, which ends like a string; false if its end has not come yet. */
static bool read_head(const char *data, size_t size, struct head *head)
{
    const char *end = memmem(data, size, "\r\n\r\n", 4);
    if (!end)
        return false;
    *head = (struct head){(size_t)(end - data) + 4, -1, false, false};
    for (const char *line = data; (line = memchr(line, '\n', (size_t)(end + 1 - line))) != NULL;) {
        const char *value;
        line++;
        if ((value = header_value(line, "content-length:")))
            head->length = atol(value);
        else if ((value = header_value(line, "transfer-encoding:")))
            head->chunked = !strncasecmp(value, "chunked", 7);
        else if ((value = header_value(line, "connection:")))
            head->last = !strncasecmp(value, "close", 5);
    }
    return true;
}

#endif
