/* main.c -- gradpool-worker. */
#include <stdio.h>
#include <string.h>

#include "worker/probe.h"

int main(int count, char **arguments)
{
    if (count == 2 && strcmp(arguments[1], "--probe") == 0)
        return gp_probe_main();
    fprintf(stderr, "gradpool-worker: expected --probe; workers are started by gradpool-scheduler\n");
    return 2;
}
