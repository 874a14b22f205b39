/* The addresses under which the mock worker answers, and what came to each. */

#ifndef PLACES_H
#define PLACES_H

#include "common.h"
#include "rules.h"

/* One address, and what came to it. */
struct place {
    long counts[MOST_RULES];
    char *last;
    size_t size, room;
};

static void count(struct place *place, const struct rule *rule, const char *body, size_t size)
{
    place->counts[rule - rules]++;
    if (!size)
        return;
    if (size > place->room) {
        place->room = size * 2;
        place->last = realloc(place->last, place->room);
        if (!place->last)
            fail("no memory is left for %zu bytes", place->room);
    }
    memcpy(place->last, body, size);
    place->size = size;
}

/* What came to an address, in memory that is used again for the next who asks. */
static struct bytes tell_counts(const struct place *place)
{
    static char *told;
    static size_t size;
    free(told);
    FILE *file = open_memstream(&told, &size);
    if (!file)
        fail("no memory is left");
    fprintf(file, "HTTP/1.1 200 Mock\r\nconnection: close\r\n\r\n");
    for (int index = 0; index < rule_count; index++)
        fprintf(file, index ? " %ld" : "%ld", place->counts[index]);
    fputc('\n', file);
    fwrite(place->last, 1, place->size, file);
    fclose(file);
    return (struct bytes){told, size};
}

#endif
