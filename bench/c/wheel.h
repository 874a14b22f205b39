/* A wheel of timers: who waits for a tick stands in the list of its slot. */

#ifndef WHEEL_H
#define WHEEL_H

#include "common.h"

#include <sys/timerfd.h>

enum { TICK_MICROSECONDS = 250, SLOTS = 16384 }; /* four seconds */

struct link {
    struct link *before, *after;
};

static struct link slots[SLOTS];
static unsigned long passed; /* ticks whose slots were emptied */
static long standing;        /* links in all slots */
static int timer;
static bool ticking;

static void clear(struct link *list)
{
    list->before = list->after = list;
}

static bool is_in_list(const struct link *link)
{
    return link->after && link->after != link;
}

static void append(struct link *list, struct link *link)
{
    link->before = list->before;
    link->after = list;
    list->before->after = link;
    list->before = link;
}

static void take_out(struct link *link)
{
    link->before->after = link->after;
    link->after->before = link->before;
    clear(link);
}

static unsigned long tick(void)
{
    return (unsigned long)(clock_seconds(CLOCK_MONOTONIC) * 1e6 / TICK_MICROSECONDS);
}

static void tick_on(bool on)
{
    long pause = on ? TICK_MICROSECONDS * 1000L : 0;
    struct itimerspec times = {{0, pause}, {0, pause}};
    timerfd_settime(timer, 0, &times, NULL);
    ticking = on;
}

static void make_wheel(void)
{
    for (int slot = 0; slot < SLOTS; slot++)
        clear(&slots[slot]);
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    if (timer < 0)
        fail("no timer can be made: %s", strerror(errno));
}

static void wait_for(struct link *link, long microseconds)
{
    if (!ticking) {
        passed = tick();
        tick_on(true);
    }
    append(&slots[(tick() + (unsigned long)(microseconds / TICK_MICROSECONDS)) % SLOTS], link);
    standing++;
}

static void stop_waiting(struct link *link)
{
    take_out(link);
    standing--;
}

/* Calls for each link whose time has come, which is in no list then. */
static void turn_wheel(void (*call)(struct link *))
{
    unsigned long now = tick();
    for (; ticking && passed <= now; passed++) {
        struct link *slot = &slots[passed % SLOTS];
        /* who waits anew waits for a later slot: a pause has a tick at least */
        while (is_in_list(slot)) {
            struct link *link = slot->after;
            stop_waiting(link);
            call(link);
        }
    }
    if (ticking && !standing)
        tick_on(false);
}

#endif
