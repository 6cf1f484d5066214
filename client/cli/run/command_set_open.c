/* Set up and tear down a command run: lease, runners, output, and the environment that commands
 * inherit. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "client/cli/run/command_set_parts.h"
#include "common/base/memory/alloc.h"
#include "common/base/system/process.h"

const char *const *command_set_environment(command_set *c, exec_place place, uint64_t job)
{
    const gp_slot *slot = c->pool == NULL ? NULL : gp_exec_slot(c->exec, place.rank);
    bool gpu = slot != NULL && slot->device_kind == GP_DEVICE_CUDA;
    /* variables that gradpool sets, the CUDA variables only on a GPU; all others are inherited */
    static const char *const names[] = { "GRADPOOL_INDEX=",   "GRADPOOL_SIZE=", "GRADPOOL_WORKER_INDEX=",
                                         "GRADPOOL_SLOT=",    "GRADPOOL_SEQ=",  "CUDA_VISIBLE_DEVICES=",
                                         "CUDA_DEVICE_ORDER=" };
    size_t count = 0;
    int own = 0;

    for (char **at = environ; *at != NULL; at++) {
        bool inherited = strchr(*at, '=') != NULL;

        for (size_t i = 0; i < (gpu ? 7 : 5) && inherited; i++)
            inherited = strncmp(*at, names[i], strlen(names[i])) != 0;
        if (inherited)
            c->environment[count++] = *at;
    }
#define OWN(...)                                                                                             \
    do {                                                                                                     \
        snprintf(c->variables[own], sizeof(c->variables[own]), __VA_ARGS__);                                 \
        c->environment[count++] = c->variables[own++];                                                       \
    } while (0)
    if (slot != NULL) {
        OWN("GRADPOOL_INDEX=%" PRIu32, place.rank + 1);
        OWN("GRADPOOL_SIZE=%" PRIu32, gp_exec_workers(c->exec));
        OWN("GRADPOOL_WORKER_INDEX=%" PRIu32, slot->index);
    }
    OWN("GRADPOOL_SLOT=%" PRIu32, place.rank * c->slots + place.slot + 1);
    OWN("GRADPOOL_SEQ=%" PRIu64, job);
    if (gpu) {
        OWN("CUDA_VISIBLE_DEVICES=%s", slot->device_uuid);
        OWN("CUDA_DEVICE_ORDER=PCI_BUS_ID");
    }
    /* A single command per worker gets the core count from its affinity mask. Several commands
     * share the cores. */
    if (slot != NULL && c->slots > 1 && slot->core_count > 0 && getenv("OMP_NUM_THREADS") == NULL)
        OWN("OMP_NUM_THREADS=%" PRIu32, slot->core_count > c->slots ? slot->core_count / c->slots : 1);
#undef OWN
    c->environment[count] = NULL;
    return c->environment;
}

/* Collect everything that commands inherit: umask, open file limit, working directory,
 * environment. */
static gp_status inheritance_take(command_set *c, gp_error *err)
{
    size_t count = 0;
    struct rlimit files;

    c->spec.mask = gp_umask() & 0777;
    /* this process holds many jobs' output files; commands get the original limit */
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        c->spec.files_max = files.rlim_cur;
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    c->spec.directory = getcwd(NULL, 0);
    if (c->spec.directory == NULL)
        return gp_fail_errno(err, GP_EIO, "the current directory has no path");
    while (environ[count] != NULL)
        count++;
    c->environment = gp_calloc(count + OWN_VARIABLES + 1, sizeof(*c->environment));
    if (c->environment == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the commands' environment");
    c->null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return c->null_fd >= 0 ? GP_OK : gp_fail_errno(err, GP_EIO, "cannot open /dev/null");
}

/* Lease workers and choose the slot count. */
static gp_status workers_take(command_set *c, gp_error *err)
{
    const command_set_options *options = c->options;
    const cli_call *call = options->call;
    gp_lease_request request;
    char purpose[96]; /* purpose shown by gradpool status, e.g. "parfor ./simulate --seed" */
    gp_status status = cli_lease_request(call, c->pool, &request, err);

    snprintf(purpose, sizeof(purpose), "%s %.40s%s%.40s", call->command->name, call->rest[0],
             call->rest_count > 1 ? " " : "", call->rest_count > 1 ? call->rest[1] : "");
    if (status == GP_OK)
        status = pool_lease(c->pool, &request, purpose, &cli_stop, err);
    if (status != GP_OK)
        return status;
    c->slots = options->slots == COMMAND_SET_SLOTS_CORES ? EXEC_SLOTS_MAX : options->slots;
    for (uint32_t i = 0; options->slots == COMMAND_SET_SLOTS_CORES && i < c->pool->grant.slots_count; i++)
        if (c->pool->grant.slots[i].core_count < c->slots) /* the smallest worker's */
            c->slots = c->pool->grant.slots[i].core_count;
    c->slots = c->slots > 0 ? c->slots : 1;
    return GP_OK;
}

gp_status command_set_open(command_set *c, gp_error *err)
{
    gp_status status = inheritance_take(c, err);
    c->slots = c->options->local;
    if (status == GP_OK) {
        /* Create the output; it frees the jobs that it gets as report subjects. */
        const command_set_options *options = c->options;
        output_options output = { .kind = options->lines ? OUTPUT_LINES : OUTPUT_WHOLE,
                                  .ordered = options->ordered,
                                  .out = STDOUT_FILENO,
                                  .err = STDERR_FILENO,
                                  .before = command_set_wipe,
                                  .context = c,
                                  .stop = &cli_stop,
                                  .report = options->report != NULL ? options->report
                                            : options->json         ? command_set_report
                                                                    : NULL,
                                  .report_context = options->report_context,
                                  .copy = options->copy,
                                  .copy_context = options->copy_context,
                                  .subject_free = command_job_free };

        status = output_new(&c->output, &output, err);
    }
    if (status == GP_OK)
        status = c->pool != NULL ? workers_take(c, err) : GP_OK;
    if (status == GP_OK)
        status = gp_exec_open(&c->exec, c->pool, c->slots, err);
    if (status != GP_OK)
        return status;
    c->running = gp_calloc((size_t)gp_exec_workers(c->exec) * c->slots, sizeof(command_job *));
    return c->running != NULL ? GP_OK : gp_fail(err, GP_ENOMEM, "no memory for jobs");
}

/* ---- closing ---- */

void command_set_close(command_set *c)
{
    for (uint32_t i = 0; c->running != NULL && i < gp_exec_workers(c->exec) * c->slots; i++)
        command_job_free(c->running[i]);
    for (command_job *job; (job = command_job_take(c)) != NULL;)
        command_job_free(job);
    gp_exec_close(c->exec);
    output_free(c->output);
    if (c->pool != NULL)
        pool_release(c->pool);
    gp_free(c->running);
    gp_free(c->environment);
    gp_free(c->fds);
    free((char *)c->spec.directory);
    gp_buffer_deinit(&c->failures);
    if (c->null_fd >= 0)
        close(c->null_fd);
}

/* ---- helpers for the commands ---- */

bool command_set_by_shell(const cli_call *call, bool given)
{
    if (cli_given(call, "shell"))
        return given;
    return call->rest_count == 1 && strpbrk(call->rest[0], " \t\n") != NULL;
}

gp_status command_set_slots(uint32_t *slots, const char *text, gp_error *err)
{
    char *end;
    unsigned long count = strtoul(text, &end, 10);

    *slots = COMMAND_SET_SLOTS_CORES;
    if (strcmp(text, "cores") == 0)
        return GP_OK;
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || count == 0 || count > EXEC_SLOTS_MAX)
        return gp_fail(err, GP_EINVAL, "--slots-per-worker is '%.40s'; it must be 1 to %d, or cores", text,
                       EXEC_SLOTS_MAX);
    *slots = (uint32_t)count;
    return GP_OK;
}

gp_status command_set_run_on_pool(const command_set_options *options, command_set_result *result,
                                  gp_error *err)
{
    gp_pool *pool = NULL;
    gp_status status = cli_open(options->call, false, &pool, err);

    if (status == GP_OK)
        status = command_set_run(options, pool, result, err);
    gp_pool_close(pool);
    return status;
}
