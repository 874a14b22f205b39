/* What the mock worker answers: rules out of a file, the first that fits is taken.

   answer PATH STATUS FILE [KEY=VALUE ...]
   stream PATH MICROSECONDS TOKENS EVENT_FILE END_FILE [KEY=VALUE ...]

   A path of * fits all. A body fits when each key, where it stands first, has that JSON value; only the first and last
   bytes of a long body are looked at. A file of - stands for no content. */

#ifndef RULES_H
#define RULES_H

#include "common.h"
#include "wheel.h"

enum { EDGE_BYTES = 2048, MOST_RULES = 256, MOST_CONDITIONS = 6 };

struct condition {
    char *key; /* in quotation marks */
    char *value;
};

struct rule {
    char *path;
    struct bytes first, next, last; /* of a stream; an answer that is whole has the first alone */
    long microseconds, tokens;      /* of a stream */
    struct condition conditions[MOST_CONDITIONS];
    int count;
};

static struct rule rules[MOST_RULES];
static int rule_count;

static struct bytes __attribute__((format(printf, 1, 2))) print(const char *format, ...)
{
    struct bytes printed;
    va_list values;
    va_start(values, format);
    int size = vasprintf(&printed.data, format, values);
    va_end(values);
    if (size < 0)
        fail("no memory is left");
    printed.size = (size_t)size;
    return printed;
}

static char *word(const char *line)
{
    char *found = strtok(NULL, " \n");
    if (!found)
        fail("a rule is too short: %s", line);
    return found;
}

/* Content that is text, which ends like a string. */
static struct bytes content_of(const char *path)
{
    return strcmp(path, "-") ? read_file(path) : print("%s", "");
}

static void read_answer(struct rule *rule, const char *line)
{
    int status = atoi(word(line));
    struct bytes content = content_of(word(line));
    rule->first = print("HTTP/1.1 %d Mock\r\nserver: mock\r\ncontent-type: application/json\r\n"
                        "content-length: %zu\r\n\r\n%s", status, content.size, content.data);
}

static void read_stream(struct rule *rule, const char *line)
{
    rule->microseconds = atol(word(line));
    rule->tokens = atol(word(line));
    struct bytes event = content_of(word(line)), end = content_of(word(line));
    long ticks = rule->microseconds / TICK_MICROSECONDS;
    if (rule->tokens < 2 || (rule->microseconds && (ticks < 1 || ticks >= SLOTS)))
        fail("a stream has two tokens at least, and a pause that the wheel has a slot for: %s", line);
    rule->next = print("%zx\r\n%s\r\n", event.size, event.data);
    rule->first = print("HTTP/1.1 200 OK\r\nserver: mock\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
                        "transfer-encoding: chunked\r\n\r\n%s", rule->next.data);
    rule->last = print("%s%zx\r\n%s\r\n0\r\n\r\n", rule->next.data, end.size, end.data);
}

static void read_rules(const char *path)
{
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    if (!file)
        fail("%s cannot be read: %s", path, strerror(errno));
    while (getline(&line, &room, file) > 0) {
        struct rule *rule = &rules[rule_count];
        char *kind = strtok(line, " \n");
        if (!kind)
            continue;
        if (++rule_count > MOST_RULES)
            fail("%s has more than %d rules", path, MOST_RULES);
        rule->path = strdup(word(line));
        if (!strcmp(kind, "stream"))
            read_stream(rule, line);
        else
            read_answer(rule, line);
        for (char *condition; (condition = strtok(NULL, " \n")); rule->count++) {
            char *value = strchr(condition, '=');
            if (!value || rule->count == MOST_CONDITIONS)
                fail("%s: a rule of %s has no such condition: %s", path, rule->path, condition);
            rule->conditions[rule->count].value = strdup(value + 1);
            rule->conditions[rule->count].key = print("\"%.*s\"", (int)(value - condition), condition).data;
        }
    }
    free(line);
    fclose(file);
}

/* What follows on a key and its colon, or NULL. */
static const char *find_value(const char *data, size_t size, const char *key)
{
    size_t length = strlen(key);
    const char *end = data + size;
    for (const char *found = data; (found = memmem(found, (size_t)(end - found), key, length));) {
        found += length;
        const char *value = found + strspn(found, " ");
        if (*value == ':')
            return value + 1 + strspn(value + 1, " ");
    }
    return NULL;
}

static bool holds(const struct condition *condition, const char *data, size_t size)
{
    const char *value = find_value(data, size > EDGE_BYTES ? EDGE_BYTES : size, condition->key);
    if (!value && size > EDGE_BYTES) {
        size_t rest = size > 2 * EDGE_BYTES ? EDGE_BYTES : size - EDGE_BYTES;
        value = find_value(data + size - rest, rest, condition->key);
    }
    size_t length = strlen(condition->value);
    return value && !strncmp(value, condition->value, length) && (!length || strchr(",}] \n", value[length]));
}

/* The rule for a request; its body ends like a string. */
static const struct rule *choose(const char *path, size_t path_size, const char *data, size_t size)
{
    for (const struct rule *rule = rules; rule < rules + rule_count; rule++) {
        int held = 0;
        if (strcmp(rule->path, "*") && (strlen(rule->path) != path_size || memcmp(rule->path, path, path_size)))
            continue;
        while (held < rule->count && holds(&rule->conditions[held], data, size))
            held++;
        if (held == rule->count)
            return rule;
    }
    return NULL;
}

#endif
