/* Times: the most for all of it, those on processors of the processes that are measured, and of answers, by rank. */

#ifndef TIMES_H
#define TIMES_H

#include "common.h"

#include <signal.h>

enum { REST_MICROSECONDS = 20000 };

/* What the processes spent so far, read once they had time to come to rest: a process that runs is accounted for at
   ticks alone, and has work left after its last answer. */
static double processor_seconds(const pid_t *processes, int count)
{
    usleep(REST_MICROSECONDS);
    double sum = 0;
    for (int index = 0; index < count; index++) {
        clockid_t clock;
        if (clock_getcpuclockid(processes[index], &clock))
            fail("there is no process %d", (int)processes[index]);
        sum += clock_seconds(clock);
    }
    return sum;
}

static void give_up(int signal)
{
    static const char reason[] = "not all requests were answered in time\n";
    (void)signal;
    if (write(STDERR_FILENO, reason, sizeof reason - 1) < 0)
        _exit(2);
    _exit(1);
}

/* Ends the process with an error after so many seconds. */
static void end_after(long seconds)
{
    signal(SIGALRM, give_up);
    alarm((unsigned)seconds);
}

static int compare(const void *one, const void *other)
{
    double difference = *(const double *)one - *(const double *)other;
    return (difference > 0) - (difference < 0);
}

/* Prints the nearest ranks. */
static void print_times(const char *name, double *times, long count)
{
    qsort(times, (size_t)count, sizeof *times, compare);
    printf(", \"%s\": {\"count\": %ld", name, count);
    if (count)
        printf(", \"p50\": %.7f, \"p99\": %.7f, \"most\": %.7f", times[(count - 1) / 2],
               times[(count * 99 + 99) / 100 - 1], times[count - 1]);
    printf("}");
}

#endif
