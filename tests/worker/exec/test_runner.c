/* test_runner.c: the command runner as seen by client and worker, with real processes. */
#include "worker/exec/runner.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/system/proc_stat.h"
#include "proto/local/runner_wire.h"
#include "tests/gp_test.h"
#include "tests/leftovers.h"

enum { TIMEOUT_MS = 60000, TEXT_BYTES = 1 << 16 };

typedef struct stage {
    pid_t pid;
    int client, worker; /* test ends of the runner's socket and pipe */
    int out, err;       /* output files of the commands */
    char directory[32];
} stage;

static stage stage_open(void)
{
    int sockets[2], pipes[2];
    stage s = { .directory = "/tmp/gpt-XXXXXX" };

    if (leftovers_make(s.directory) == NULL ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0 || pipe2(pipes, O_CLOEXEC) != 0)
        abort();
    fflush(stdout);
    s.pid = fork();
    if (s.pid == 0) {
        close(sockets[0]);
        close(pipes[1]);

        /* descriptors inherited by this program */
        syscall(SYS_close_range, 3, ~0u, 4 /* CLOSE_RANGE_CLOEXEC */);
        _exit(gp_runner_main(sockets[1], pipes[0]));
    }
    close(sockets[1]);
    close(pipes[0]);
    s.client = sockets[0];
    s.worker = pipes[1];
    s.out = memfd_create("out", MFD_CLOEXEC);
    s.err = memfd_create("err", MFD_CLOEXEC);
    return s;
}

/* Return the exit code of the runner. -1: it does not exit. */
static int stage_wait(stage *s)
{
    int64_t deadline = gp_now_ms() + TIMEOUT_MS;
    int status;

    while (waitpid(s->pid, &status, WNOHANG) != s->pid) {
        if (gp_now_ms() > deadline)
            return -1;
        gp_sleep_ms(1);
    }
    s->pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void stage_close(stage *s)
{
    if (s->directory[0] == '\0')
        return;
    if (s->client >= 0)
        close(s->client);
    if (s->worker >= 0)
        close(s->worker);
    if (s->pid != 0)
        CHECK_INT(0, stage_wait(s));
    close(s->out);
    close(s->err);
    leftovers_clear(s->directory);
    s->directory[0] = '\0';
}

static const char *said(int fd)
{
    static char text[TEXT_BYTES];
    ssize_t got = pread(fd, text, sizeof(text) - 1, 0);

    text[got > 0 ? got : 0] = '\0';
    return text;
}

static const char *const usual[] = { "PATH=/usr/bin:/bin", NULL };

static gp_status ask_with(stage *s, uint64_t job, const gp_runner_spec *spec, int in, gp_error *err)
{
    int fds[GP_RUNNER_FDS] = { -1, in, s->out, s->err };
    gp_runner_request request = { .kind = GP_RUNNER_START, .job = job };
    gp_status status = gp_runner_spec_write(&fds[0], &request.spec_bytes, spec, err);

    if (status != GP_OK)
        return status;
    status = gp_runner_ask_send(s->client, &request, fds, GP_RUNNER_FDS, err);
    close(fds[0]);
    return status;
}

static void ask(stage *s, uint64_t job, const char *const *arguments)
{
    gp_runner_spec spec = {
        .directory = s->directory, .arguments = arguments, .environment = usual, .mask = 022
    };
    int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    gp_error err;

    if (ask_with(s, job, &spec, in, &err) != GP_OK)
        GP_TEST_FAIL("%s", err.message);
    close(in);
}

#define ASK(s, job, ...)    ask(s, job, (const char *const[]){ __VA_ARGS__, NULL })
#define SHELL(s, job, line) ASK(s, job, "sh", "-c", line)

static void ask_kill(stage *s, uint64_t job, uint32_t grace_ms)
{
    gp_runner_request request = { .kind = GP_RUNNER_KILL, .job = job, .grace_ms = grace_ms };

    CHECK_STATUS(GP_OK, gp_runner_ask_send(s->client, &request, NULL, 0, NULL));
}

/* Return the next answer; kind 0: end of file or timeout. */
static gp_runner_answer answer(stage *s)
{
    int64_t deadline = gp_now_ms() + TIMEOUT_MS;
    gp_runner_answer a = { 0 };

    while (gp_runner_answer_receive(s->client, &a, NULL) == GP_ETIMEDOUT && gp_now_ms() < deadline)
        poll(&(struct pollfd){ .fd = s->client, .events = POLLIN }, 1, 100);
    return a;
}

/* Expect STARTED, then return ENDED. */
static gp_runner_answer end_of(stage *s, uint64_t job)
{
    gp_runner_answer a = answer(s);

    CHECK_INT(GP_RUNNER_STARTED, a.kind);
    CHECK_INT(job, a.job);
    CHECK(a.pid > 1);
    a = answer(s);
    CHECK_INT(GP_RUNNER_ENDED, a.kind);
    CHECK_INT(job, a.job);
    return a;
}

static bool alive(pid_t pid)
{
    gp_proc_stat stat;

    return gp_proc_stat_read(&stat, pid) && stat.state != 'X' && stat.state != 'Z';
}

/* Read the pids that commands wrote to a file in the stage directory, one per line; wait for
 * `count`. */
static void pids_read(const stage *s, const char *name, pid_t *pids, int count)
{
    int64_t deadline = gp_now_ms() + TIMEOUT_MS;
    char path[80];
    int got = 0;

    snprintf(path, sizeof(path), "%s/%s", s->directory, name);
    while (got < count && gp_now_ms() < deadline) {
        FILE *file = fopen(path, "r");

        for (got = 0; file != NULL && got < count && fscanf(file, "%d\n", &pids[got]) == 1;)
            got++;
        if (file != NULL)
            fclose(file);
        gp_sleep_ms(2);
    }
    CHECK_INT(count, got);
    for (; got < count; got++)
        pids[got] = 999999999;
}

/* Wait until the processes have exited and their parent has reaped them. */
static void await_ends(const pid_t *pids, int count)
{
    int64_t deadline = gp_now_ms() + TIMEOUT_MS;

    for (int i = 0; i < count; i++)
        while (kill(pids[i], 0) == 0 && gp_now_ms() < deadline)
            gp_sleep_ms(2);
}

static void check_none_alive(const pid_t *pids, int count)
{
    for (int i = 0; i < count; i++)
        if (alive(pids[i]))
            GP_TEST_FAIL("process %d of %d (pid %d) is alive", i + 1, count, (int)pids[i]);
}

static stage s; /* stage of the running test */

TEARDOWN()
{
    stage_close(&s);
}

/* ---- starting ---- */

/* An exiting runner no longer reads requests. The kernel reports this before the runner's last
 * answers. */
TEST(last_answers_of_a_runner_arrive_despite_unread_requests)
{
    gp_runner_request request = { .kind = GP_RUNNER_KILL, .job = 7 };
    gp_runner_answer answer = { .kind = GP_RUNNER_ENDED, .job = 6 };
    int sockets[2];
    gp_error err;

    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) == 0);
    REQUIRE_OK(gp_runner_answer_send(sockets[1], &answer, &err), err);
    REQUIRE_OK(gp_runner_ask_send(sockets[0], &request, NULL, 0, &err), err);
    close(sockets[1]);
    answer.job = 0;
    REQUIRE_OK(gp_runner_answer_receive(sockets[0], &answer, &err), err);
    CHECK_INT(6, answer.job);
    CHECK_INT(GP_EPEER, gp_runner_answer_receive(sockets[0], &answer, &err));
    close(sockets[0]);
}

TEST(a_command_has_the_directory_umask_environment_and_streams_of_its_client)
{
    s = stage_open();
    const char *const arguments[] = { "sh", "-c",
                                      "cat; pwd; umask; env | grep -v -e ^_= -e ^PWD= | sort; echo bad >&2",
                                      NULL };
    const char *const environment[] = { "PATH=/usr/bin:/bin", "B=two words", "A=", NULL };
    gp_runner_spec spec = {
        .directory = s.directory, .arguments = arguments, .environment = environment, .mask = 027
    };
    int in = memfd_create("in", MFD_CLOEXEC);
    char expected[200];
    gp_error err;

    CHECK_INT(5, write(in, "hello", 5));
    lseek(in, 0, SEEK_SET);
    REQUIRE_OK(ask_with(&s, 7, &spec, in, &err), err);
    gp_runner_answer a = end_of(&s, 7);

    CHECK_INT(0, a.exit_code);
    CHECK_INT(0, a.signal);
    CHECK(a.seconds > 0 && a.user_seconds + a.system_seconds > 0 && a.rss_bytes > 1 << 16);
    snprintf(expected, sizeof(expected), "hello%s\n0027\nA=\nB=two words\nPATH=/usr/bin:/bin\n", s.directory);
    CHECK_TEXT(expected, said(s.out));
    CHECK_TEXT("bad\n", said(s.err));
    close(in);
}

TEST(a_command_has_no_other_descriptors_no_blocked_signals_and_a_group_of_its_own)
{
    s = stage_open();
    ASK(&s, 1, "ls", "/proc/self/fd"); /* descriptor 3 is that directory */
    CHECK_INT(0, end_of(&s, 1).exit_code);
    ASK(&s, 2, "grep", "-E", "-h", "-o", "Sig(Blk|Ign).*", "/proc/self/status");
    CHECK_INT(0, end_of(&s, 2).exit_code);
    SHELL(&s, 3, "exec awk -v me=$$ '{print ($5 == me)}' /proc/$$/stat");
    CHECK_INT(0, end_of(&s, 3).exit_code);
    CHECK_TEXT("0\n1\n2\n3\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n1\n", said(s.out));
}

TEST(exit_codes_and_signals_are_distinguished)
{
    s = stage_open();
    gp_runner_answer a;

    SHELL(&s, 1, "exit 3");
    a = end_of(&s, 1);
    CHECK_INT(3, a.exit_code);
    CHECK_INT(0, a.signal);
    SHELL(&s, 2, "ulimit -c 0; kill -SEGV $$");
    a = end_of(&s, 2);
    CHECK_INT(-1, a.exit_code);
    CHECK_INT(SIGSEGV, a.signal);
    SHELL(&s, 3, "ulimit -c 0; kill -ABRT $$");
    a = end_of(&s, 3);
    CHECK_INT(SIGABRT, a.signal);
    CHECK_INT(0, a.core);
}

TEST(command_that_cannot_run_gives_an_error_and_a_shell_exit_code)
{
    s = stage_open();
    const char *const arguments[] = { "true", NULL };
    gp_runner_spec spec = { .directory = "/nonexistent/place", .arguments = arguments, .environment = usual };
    gp_runner_answer a;
    gp_error err;

    ASK(&s, 1, "no-such-command", "x");
    a = answer(&s);
    CHECK_INT(GP_RUNNER_FAILED, a.kind);
    CHECK_INT(1, a.job);
    CHECK_INT(127, a.exit_code);
    CHECK_TEXT("command not found: 'no-such-command'; PATH is /usr/bin:/bin", a.text);
    ASK(&s, 2, "./missing");
    a = answer(&s);
    CHECK_INT(127, a.exit_code);
    CHECK_CONTAINS(a.text, "cannot run './missing' in /tmp/gpt-");
    ASK(&s, 3, "/etc/passwd");
    a = answer(&s);
    CHECK_INT(126, a.exit_code);
    CHECK_CONTAINS(a.text, "cannot run '/etc/passwd': Permission denied");
    REQUIRE_OK(ask_with(&s, 4, &spec, s.out, &err), err);
    a = answer(&s);
    CHECK_INT(GP_RUNNER_FAILED, a.kind);
    CHECK_TEXT("cannot change to the directory /nonexistent/place: No such file or directory", a.text);
    ASK(&s, 5, "true");
    CHECK_INT(0, end_of(&s, 5).exit_code);
}

TEST(the_first_of_two_search_paths_counts)
{
    s = stage_open();
    const char *const arguments[] = { "true", NULL };
    const char *const environment[] = { "PATH=/usr/bin:/bin", "PATH=/nonexistent", NULL };
    gp_runner_spec spec = { .directory = s.directory, .arguments = arguments, .environment = environment };
    gp_error err;

    REQUIRE_OK(ask_with(&s, 1, &spec, s.out, &err), err);
    CHECK_INT(0, end_of(&s, 1).exit_code);
}

TEST(scripts_run_with_their_interpreter_and_without_one_by_the_shell)
{
    s = stage_open();
    char path[80];
    const char *texts[] = { "#!/bin/sh\necho first $1\n", "echo second $1\n", "#!/no/such/interpreter\n" };
    gp_runner_answer a;

    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s/s%d", s.directory, i);
        FILE *file = fopen(path, "w");

        fputs(texts[i], file);
        fchmod(fileno(file), 0755);
        fclose(file);
    }
    ASK(&s, 1, "./s0", "a b");
    CHECK_INT(0, end_of(&s, 1).exit_code);
    ASK(&s, 2, "./s1", "c");
    CHECK_INT(0, end_of(&s, 2).exit_code);
    CHECK_TEXT("first a b\nsecond c\n", said(s.out));
    ASK(&s, 3, path);
    a = answer(&s);
    CHECK_INT(127, a.exit_code);
    CHECK_CONTAINS(a.text, "interpreter");
}

TEST(commands_beyond_the_limit_are_refused)
{
    enum { COUNT = 40 };
    s = stage_open();
    int ended = 0, started = 0;
    char path[80];

    for (uint64_t job = 1; job <= COUNT; job++)
        SHELL(&s, job, "echo line; until [ -e go ]; do sleep 0.01; done");
    ASK(&s, 1, "true"); /* this job number is in use */
    for (int i = 0; i < COUNT; i++)
        started += answer(&s).kind == GP_RUNNER_STARTED;
    CHECK_INT(COUNT, started);
    gp_runner_answer refused = answer(&s);

    CHECK_INT(GP_RUNNER_FAILED, refused.kind);
    CHECK_TEXT("job 1 is already running", refused.text);
    snprintf(path, sizeof(path), "%s/go", s.directory);
    close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    for (int i = 0; i < COUNT; i++) {
        gp_runner_answer a = answer(&s);

        ended += a.kind == GP_RUNNER_ENDED && a.exit_code == 0;
    }
    CHECK_INT(COUNT, ended);
}

TEST(client_that_reads_late_loses_no_answers)
{
    enum { COUNT = 1200 };
    s = stage_open();
    uint64_t asked = 0, ended = 0;

    while (ended < COUNT) {
        const char *const arguments[] = { "/bin/true", NULL };
        gp_runner_spec spec = { .directory = "/", .arguments = arguments, .environment = usual };
        gp_error err;

        /* Fill the socket with requests, then read all answers. */
        while (asked < COUNT && asked - ended < 200 && ask_with(&s, asked + 1, &spec, s.out, &err) == GP_OK)
            asked++;
        for (gp_runner_answer a = { 0 }; ended < asked;) {
            a = answer(&s);
            REQUIRE(a.kind != 0);
            ended += a.kind != GP_RUNNER_STARTED;
            CHECK(a.kind != GP_RUNNER_FAILED);
        }
    }
    CHECK_INT(COUNT, asked);
}

/* ---- ending ---- */

TEST(job_gets_sigterm_then_its_process_tree_is_killed)
{
    s = stage_open();
    pid_t pids[3];
    gp_runner_answer a;

    SHELL(&s, 1, "trap 'echo asked; exit 9' TERM; echo $$ > ready; while :; do sleep 0.01; done");
    CHECK_INT(GP_RUNNER_STARTED, answer(&s).kind);
    pids_read(&s, "ready", pids, 1);
    ask_kill(&s, 1, TIMEOUT_MS);
    a = answer(&s);
    CHECK_INT(9, a.exit_code);
    CHECK_TEXT("asked\n", said(s.out));

    /* A command that ignores SIGTERM, with a child in another session. */
    SHELL(&s, 2,
          "trap '' TERM; echo $$ > pids; setsid sh -c 'echo $$ >> pids; sleep 100' & "
          "(echo $(exec sh -c 'echo $PPID') >> pids; exec sleep 100)");
    CHECK_INT(GP_RUNNER_STARTED, answer(&s).kind);
    pids_read(&s, "pids", pids, 3);
    ask_kill(&s, 2, 50);
    a = answer(&s);
    CHECK_INT(2, a.job);
    CHECK_INT(SIGKILL, a.signal);
    await_ends(pids + 1, 2);
    check_none_alive(pids, 3);
    ask_kill(&s, 77, 0); /* unknown job */
    ASK(&s, 3, "true");
    CHECK_INT(0, end_of(&s, 3).exit_code);
}

/* A proper daemon, a process that ignores signals, a process in a pipe, and a stopped one. */
static const char *const survivors =
    "(setsid sh -c 'trap \"\" TERM HUP INT; echo $$ >> pids; sleep 100 & echo $! >> pids; wait' &) & "
    "sh -c 'echo $$ >> pids; exec sleep 100' | cat & "
    "sh -c 'echo $$ >> pids; kill -STOP $$' & echo $$ > main; sleep 100";

static void check_end_of(bool of_worker, bool command_has_ended)
{
    s = stage_open();
    pid_t pids[5];

    SHELL(&s, 1, survivors);
    CHECK_INT(GP_RUNNER_STARTED, answer(&s).kind);
    pids_read(&s, "pids", pids, 4);
    pids_read(&s, "main", pids + 4, 1);
    if (command_has_ended) { /* the children are orphans then */
        kill(pids[4], SIGKILL);
        CHECK_INT(GP_RUNNER_ENDED, answer(&s).kind);
    }
    if (of_worker) {
        close(s.worker);
        s.worker = -1;
        while (answer(&s).kind != 0)
            ;
        check_none_alive(pids, 5); /* as the end of file indicates */
    } else {
        close(s.client);
        s.client = -1;
    }
    CHECK_INT(0, stage_wait(&s));
    check_none_alive(pids, 5);
}

TEST(no_process_outlives_the_client)
{
    check_end_of(false, false);
}

TEST(no_process_outlives_the_worker)
{
    check_end_of(true, false);
}

TEST(orphans_of_a_command_do_not_outlive_the_worker)
{
    check_end_of(true, true);
}

TEST(only_jobs_that_ended_before_the_worker_exited_are_reported)
{
    s = stage_open();
    bool reported = false;
    pid_t pid;

    SHELL(&s, 1, "echo $$ > pid; exit 4");
    SHELL(&s, 2, "sleep 100");
    pids_read(&s, "pid", &pid, 1);
    await_ends(&pid, 1);
    close(s.worker);
    s.worker = -1;
    for (gp_runner_answer a = answer(&s); a.kind != 0; a = answer(&s)) {
        CHECK(a.job == 1 || a.kind == GP_RUNNER_STARTED);
        reported |= a.job == 1 && a.kind == GP_RUNNER_ENDED && a.exit_code == 4;
    }
    CHECK(reported);
    CHECK_INT(0, stage_wait(&s));
}

TEST(a_tree_that_grows_while_it_is_killed_is_killed)
{
    s = stage_open();
    pid_t first;

    SHELL(&s, 1,
          "echo $$ > pid; n=0; while [ $n -lt 400 ]; do (setsid sh -c 'sleep 0.01; sleep 50' &) ; "
          "n=$((n+1)); done");
    CHECK_INT(GP_RUNNER_STARTED, answer(&s).kind);
    pids_read(&s, "pid", &first, 1);
    gp_sleep_ms(60);
    close(s.client);
    s.client = -1;
    CHECK_INT(0, stage_wait(&s)); /* the runner exits once it has no child, hence no descendant */
}

TEST(commands_are_killed_with_their_runner)
{
    s = stage_open();
    pid_t pid;

    SHELL(&s, 1, "echo $$ > pid; exec sleep 100");
    pids_read(&s, "pid", &pid, 1);
    kill(s.pid, SIGKILL);
    CHECK_INT(128 + SIGKILL, stage_wait(&s));
    await_ends(&pid, 1);
    check_none_alive(&pid, 1);
}

/* ---- invalid requests ---- */

static void check_refused(const void *packet, size_t bytes)
{
    s = stage_open();
    CHECK_INT(bytes, send(s.client, packet, bytes, 0));
    CHECK_INT(0, stage_wait(&s)); /* the runner hangs up and ends all jobs */
    stage_close(&s);
}

TEST(malformed_request_ends_the_runner)
{
    gp_runner_request start = {
        .magic = GP_RUNNER_MAGIC, .kind = GP_RUNNER_START, .job = 1, .spec_bytes = 100
    };
    gp_runner_request kind = { .magic = GP_RUNNER_MAGIC, .kind = 9, .job = 1 };
    gp_runner_request magic = { .magic = 1, .kind = GP_RUNNER_KILL, .job = 1 };

    check_refused(&start, sizeof(start)); /* without descriptors */
    check_refused(&kind, sizeof(kind));
    check_refused(&magic, sizeof(magic));
    check_refused("x", 1);
}

static void ask_bytes(uint64_t job, const void *data, size_t bytes, uint32_t said_bytes)
{
    int fds[GP_RUNNER_FDS] = { memfd_create("spec", MFD_CLOEXEC), s.out, s.out, s.err };
    gp_runner_request request = { .kind = GP_RUNNER_START, .job = job, .spec_bytes = said_bytes };

    CHECK_INT(bytes, write(fds[0], data, bytes));
    CHECK_STATUS(GP_OK, gp_runner_ask_send(s.client, &request, fds, GP_RUNNER_FDS, NULL));
    close(fds[0]);
}

TEST(malformed_spec_is_refused_and_the_runner_continues)
{
    struct {
        uint32_t magic, mask, arguments, variables;
        uint64_t files;
        char text[24];
    } good = { GP_RUNNER_MAGIC, 022, 1, 1, 0, "/\0/bin/true\0A=1" }, bad;
    enum { TEXT_USED = 2 + 10 + 4 };
    uint32_t whole = 24 + TEXT_USED;
    s = stage_open();
    gp_runner_answer a;

    ask_bytes(1, &good, whole, whole);
    CHECK_INT(0, end_of(&s, 1).exit_code);
    for (int i = 0; i < 9; i++) {
        uint32_t bytes = whole;

        bad = good;
        switch (i) {
        case 0:
            bad.magic++;
            break;
        case 1:
            bad.mask = 01000;
            break;
        case 2:
            bad.arguments = 0;
            break;
        case 3:
            bad.arguments = 2;
            break;
        case 4:
            bad.variables = 0;
            break;
        case 5:
            bad.arguments = UINT32_MAX;
            break;
        case 6:
            bad.text[0] = 'r';
            break;
        case 7:
            bad.text[13] = '-';
            break; /* a variable without '=' */
        default:
            bytes = 10;
            break;
        }
        ask_bytes(2, &bad, whole, bytes);
        a = answer(&s);
        CHECK_INT(GP_RUNNER_FAILED, a.kind);
        CHECK_INT(GP_EPROTO, a.status);
    }
    ask_bytes(3, &good, whole - 2, whole); /* truncated */
    CHECK_INT(GP_RUNNER_FAILED, answer(&s).kind);
    ask_bytes(4, &good, whole, GP_RUNNER_SPEC_BYTES_MAX + 1);
    CHECK_INT(GP_RUNNER_FAILED, answer(&s).kind);
    ask_bytes(5, &good, whole, whole);
    CHECK_INT(0, end_of(&s, 5).exit_code);
}

TEST(commands_over_the_limits_are_refused_before_sending)
{
    static const char *many[GP_RUNNER_WORDS_MAX + 3];
    const char *const none[] = { NULL };
    int fd;
    uint32_t bytes;
    gp_error err;

    for (int i = 0; i < GP_RUNNER_WORDS_MAX + 2; i++)
        many[i] = "a=b";
    CHECK_STATUS(GP_ELIMIT,
                 gp_runner_spec_write(&fd, &bytes, &(gp_runner_spec){ "/", many, usual, 0, 0 }, &err));
    CHECK_STATUS(GP_EINVAL,
                 gp_runner_spec_write(&fd, &bytes, &(gp_runner_spec){ "/", none, usual, 0, 0 }, &err));
    CHECK_STATUS(GP_EINVAL,
                 gp_runner_spec_write(&fd, &bytes, &(gp_runner_spec){ "here", many, usual, 0, 0 }, &err));
}
