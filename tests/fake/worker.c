/* worker.c: gradpool-worker with an engine that computes nothing. */
#include "tests/fake/engine.h"
#include "worker/daemon/start.h"

static gp_status fake_source(const gp_backend_ops **out, gp_error *err)
{
    (void)err;
    *out = &fake_backend;
    return GP_OK;
}

int main(int count, char **arguments)
{
    return gp_worker_main(count, arguments, fake_source, fake_source);
}
