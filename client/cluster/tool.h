/* Run an external command, such as sbatch, ssh or kubectl, with limits on time and output.
 *
 * The command gets its words without a shell, its input as a file in memory, and no other
 * descriptors of this process. It leads a new session: it has no terminal to ask for a password on,
 * and Ctrl-C in this process's terminal does not reach it, so a launch that began is completed. */
#ifndef GP_CLUSTER_TOOL_H
#define GP_CLUSTER_TOOL_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/error.h"
#include "common/base/memory/buffer.h"

enum {
    CLUSTER_TOOL_MS = 30000,            /* default time limit */
    CLUSTER_TOOL_OUTPUT_MAX = 16 << 20, /* default limit on standard output, bytes */
    CLUSTER_TOOL_ERRORS_MAX = 16 << 10, /* kept beginning of standard error, bytes */
    CLUSTER_TOOL_INPUT_MAX = 64 << 20,  /* limit on standard input, bytes */
    CLUSTER_TOOL_VARIABLES_MAX = 4096,  /* limit on environment variables */
};

/* Prefixes of the variables of a job, ended by NULL; for example `drop` for commands that launch
 * jobs. A job can run `submit`, and the new job must not take over the time limit and the identity
 * of that job. */
extern const char *const cluster_job_variables[];

/* Return whether `variable` (NAME=VALUE) begins with one of the prefixes. NULL: none. */
bool cluster_has_prefix(const char *variable, const char *const *prefixes);

/* A process of a command that waits for its standard input. */
typedef struct cluster_tool_prepared cluster_tool_prepared;

/* A command to run. */
typedef struct cluster_tool {
    const char *const *words; /* NULL-terminated; words[0] without '/' is searched in PATH */
    const char *input;        /* standard input; NULL: empty */
    size_t input_bytes;
    const char *const *set;  /* NULL-terminated NAME=VALUE, added to the environment; NULL: none */
    const char *const *keep; /* NULL-terminated names of the variables to keep; NULL: all */
    const char *const *drop; /* NULL-terminated prefixes of variables to remove; NULL: none */
    size_t output_max;       /* limit on standard output; 0: CLUSTER_TOOL_OUTPUT_MAX */
    int timeout_ms;          /* time limit; 0: CLUSTER_TOOL_MS */
    const char *cause;       /* words in the line of standard error with the cause; NULL: the last line */
    bool one_line;           /* the first line of output of a prepared process is its answer */
    /* process of the same words and environment, from cluster_tool_prepare(); NULL: none */
    cluster_tool_prepared *prepared;
} cluster_tool;

/* The end of a command that ran. */
typedef struct cluster_tool_result {
    int code;         /* exit code; 128 + N: killed by signal N */
    gp_buffer output; /* standard output */
    gp_buffer errors; /* beginning of standard error */
} cluster_tool_result;

/* Start a command whose input is not known yet. cluster_tool_run() writes the input, once; until
 * then the command waits for it. So the command loads its libraries while the caller prepares the
 * input. If this process ends first, the command gets an empty input.
 *   out  free it with cluster_tool_prepared_free()
 * Errors as for cluster_tool_run(). */
gp_status cluster_tool_prepare(cluster_tool_prepared **out, const cluster_tool *tool, gp_error *err);

/* Kill the process if cluster_tool_run() has not used it; reap it if it has answered. NULL: do
 * nothing. */
void cluster_tool_prepared_free(cluster_tool_prepared *prepared);

/* Run a command and wait until it exits. A process that it leaves in the background continues.
 * A prepared process gets the input, if it has not got one yet, and if its pipe can take the input
 * as a whole: a command must not act on half of it. Otherwise a new process is started.
 * With `one_line`, a prepared process need not exit: its first line of output is the result, with
 * code 0, and it exits while the caller continues.
 *   out  set on GP_OK; free it with cluster_tool_deinit()
 * GP_OK: the command ran and exited; out->code has the exit code.
 * GP_ENOENT: no such program; nothing was started.
 * GP_EIO, GP_ENOMEM, GP_EINVAL: the command cannot be started.
 * GP_ETIMEDOUT: the time limit passed. GP_ELIMIT: more output than allowed. GP_EPEER: this process
 * cannot wait for the command or store its output. Then the command and its process group were
 * killed, and its effect is unknown. */
gp_status cluster_tool_run(cluster_tool_result *out, const cluster_tool *tool, gp_error *err);

void cluster_tool_deinit(cluster_tool_result *result);

/* Set *err to a message for a command that exited with an error: its name, exit code and the last
 * line of its standard error. Return `code`. */
gp_status cluster_tool_fail(gp_error *err, gp_status code, const cluster_tool *tool,
                            const cluster_tool_result *result);

/* Find a program as the shell does. GP_ENOENT: not in PATH; the message names PATH. */
gp_status cluster_tool_find(char *path, size_t bytes, const char *name, gp_error *err);

#endif
