/* worker.c -- gradpool-worker with an engine that computes nothing. */
#include "tests/fake/engine.h"
#include "worker/start.h"

int main(int count, char **arguments)
{
    return gp_worker_main(count, arguments, &fake_backend, &fake_backend);
}
