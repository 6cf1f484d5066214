/* stage.h: one pool with injected faults: private directories, commands with time limits, and
 * checks for leftovers.
 *
 * Cases run in parallel, each in a child process (cases.h); a stage belongs to one such process. */
#ifndef GP_TEST_FAULT_STAGE_H
#define GP_TEST_FAULT_STAGE_H

#include <fcntl.h>
#include <sys/resource.h>

#include "tests/service/pools.h"

enum { STAGE_TEXT = 1 << 16 };

static char stage_out[STAGE_TEXT], stage_err[STAGE_TEXT]; /* output of the last command */

static int stage_seen; /* lines already read from `told` on this stage */

static inline void stage_begin(void)
{
    stage_seen = 0;
    pools_begin(NULL);
    setenv("HOME", pools_root, 1);
    setenv("GRADPOOL_FAULT_REPORT", in_root("told"), 1);
    if (mkdir(in_root("w"), 0700) != 0)
        abort();
}

/* ---- commands ---- */

static rlim_t stage_descriptors; /* limit for the next commands and their children; 0: unchanged */

/* Start a command. faults: GRADPOOL_FAULT for the command and child processes. */
static inline pid_t stage_start(const char *faults, const char *const *words)
{
    fflush(stdout);
    pid_t child = fork();

    if (child != 0)
        return child;
    if (faults != NULL)
        setenv("GRADPOOL_FAULT", faults, 1);
    const int files[] = { open("/dev/null", O_RDONLY), command_file("out"), command_file("err") };

    if (stage_descriptors != 0)
        setrlimit(RLIMIT_NOFILE, &(struct rlimit){ stage_descriptors, stage_descriptors });
    command_exec(in_root("w"), files, words);
    return child;
}

enum { STAGE_KILLED = -1, STAGE_LATE = -2 };

/* Resume the processes that stopped at a fault point since the last call, each after hold_ms. */
static inline void stage_continue(int64_t hold_ms)
{
    FILE *file = fopen(in_root("told"), "r");
    char action[16];
    int line = 0, pid;

    while (file != NULL && fscanf(file, "%d %*s %15s", &pid, action) == 2)
        if (line++ >= stage_seen) {
            stage_seen = line;
            if (strcmp(action, "stop") == 0 && await_stopped(pid)) {
                gp_sleep_ms(hold_ms);
                kill(pid, SIGCONT);
            }
        }
    if (file != NULL)
        fclose(file);
}

/* Line in `told`, without the pid, after which the next command is interrupted; NULL: no
 * interrupt. */
static const char *stage_enough;

static inline bool stage_told(const char *line)
{
    char reported[1000];

    slurp(in_root("told"), reported, sizeof(reported));
    return strstr(reported, line) != NULL;
}

/* Return the exit code of a command. STAGE_KILLED: by a signal; STAGE_LATE: timed out and was
 * killed here. */
static inline int stage_finish(pid_t child, int64_t hold_ms)
{
    int64_t deadline = gp_now_ms() + 2 * POOLS_TIMEOUT_MS;
    int state = 0;
    bool late = false;

    while (waitpid(child, &state, WNOHANG) != child) {
        stage_continue(hold_ms);
        if (stage_enough != NULL && stage_told(stage_enough)) {
            kill(child, SIGINT);
            stage_enough = NULL;
        }
        if (!late && gp_now_ms() > deadline) {
            late = true;
            kill(child, SIGKILL);
        }
        gp_sleep_ms(4);
    }
    stage_continue(hold_ms);
    slurp(in_root("out"), stage_out, sizeof(stage_out));
    slurp(in_root("err"), stage_err, sizeof(stage_err));
    return late ? STAGE_LATE : WIFEXITED(state) ? WEXITSTATUS(state) : STAGE_KILLED;
}

#define STAGE_RUN(...) stage_finish(stage_start(NULL, (const char *const[]){ __VA_ARGS__, NULL }), 0)

/* Start a pool of two workers on a new stage. faults (may be NULL): GRADPOOL_FAULT for the daemons.
 * false: the command failed, which is reported. */
static inline bool stage_up(const char *faults)
{
    static const char *const words[] = { "up", "--workers", "2", NULL };

    stage_begin();
    const int code = stage_finish(stage_start(faults, words), 0);

    if (code != 0)
        GP_TEST_FAIL("up: %d: %s", code, stage_err);
    return code == 0;
}

/* Check that the command printed exactly one readable error. */
static inline void stage_check_error(const char *what)
{
    int errors = 0;

    for (char *line = stage_err; *line != '\0'; line += strcspn(line, "\n"), line += *line == '\n')
        errors += strncmp(line, "gradpool ", 9) == 0 && strstr(line, ": ") != NULL;
    if (errors != 1)
        GP_TEST_FAIL("%s: %d errors instead of one: %s", what, errors, stage_err);
}

/* ---- leftovers ---- */

/* Send a signal (0: none) to every process whose environment names this stage's directories. Return
 * the number of processes. */
static inline int stage_signal_all(int number, bool tell)
{
    static pid_t pids[4096];
    uint32_t found = pool_processes(NULL, pids, 4096);
    int count = 0;

    for (uint32_t i = 0; i < found; i++) {
        char path[40], text[4096];

        if (!process_alive(pids[i]))
            continue;
        count++;
        if (number != 0)
            kill(pids[i], number);
        if (tell) {
            snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pids[i]);
            slurp(path, text, sizeof(text));
            printf("     left: %d %s\n", (int)pids[i], text);
        }
    }
    return count;
}

static int stage_left; /* unexpected files */

static int stage_look(const char *path, const struct stat *facts, int kind, struct FTW *at)
{
    const char *name = path + at->base;

    (void)kind;
    if (S_ISSOCK(facts->st_mode) || strstr(name, ".tmp") != NULL || strncmp(name, "core", 4) == 0) {
        printf("     left: %s\n", path);
        stage_left++;
    }
    return 0;
}

/* Check that soon after `down` (P12) no process, socket or partial file is left. */
static inline void stage_check_left(void)
{
    AWAIT(stage_signal_all(0, false) == 0, 10);
    if (stage_signal_all(0, true) > 0)
        GP_TEST_FAIL("processes are still running");
    stage_left = 0;
    nftw(pools_root, stage_look, 16, FTW_DEPTH | FTW_PHYS);
    if (stage_left > 0)
        GP_TEST_FAIL("%d files remain", stage_left);
}

/* Print the daemon logs after a failure, then kill and remove everything. No effect without
 * directories. */
static inline void stage_end(void)
{
    if (pools_root[0] == '\0')
        return;
    if (gp_test_failures != 0 &&
        shell("for f in state/*/default/log/*.log; do echo \"== $f\"; tail -n 25 $f; done; echo; cat told") !=
            0)
        printf("     no log\n");
    stage_signal_all(SIGKILL, false);
    for (int i = 0; i < POOLS_TIMEOUT_MS && stage_signal_all(0, false) > 0; i++)
        gp_sleep_ms(1);
    leftovers_clear(pools_root);
    pools_root[0] = '\0';
}

#endif
