/* test_limits.c: descriptors, clients, disk space and time run out or jump; directories are hostile
 * or stale; versions differ. Expected: at most one clear error, no abort, and a pool that keeps
 * serving.
 *
 * GRADPOOL_FAULT_LONG=1: 10,000 clients instead of 1,000. */
#include <errno.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "client/gradpool.h"
#include "client/pool/pool.h"
#include "proto/local/control_socket.h"
#include "tests/descriptors.h"
#include "tests/fault/stage.h"
#include "tests/service/killer.h"
#include "tests/sort.h"

#define TRAIN                                                                                                \
    "train", "--network", "lenet", "--data", "digits:120", "--max-epochs", "1", "--mini-batch-size", "60",   \
        "--out", "m.onnx", "--quiet"

static void check_logs_have_no(const char *word)
{
    if (shell("grep -h '%s' state/*/default/log/*.log 2>/dev/null", word) == 0)
        GP_TEST_FAIL("a daemon's log has \"%s\"", word);
}

static void end_well(void)
{
    stage_descriptors = 0;
    CHECK_INT(0, STAGE_RUN("down"));
    stage_check_left();
    stage_end();
}

/* ---- descriptors ---- */

TEST(command_works_or_fails_clearly_with_few_descriptors)
{
    static const rlim_t limits[] = { 10, 12, 14, 16, 18, 20, 22, 24, 28, 32, 40, 48, 64, 128 };
    int worked = 0, said = 0;

    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]) && gp_test_failures == 0; i++) {
        stage_begin();
        stage_descriptors = limits[i];
        int code = STAGE_RUN("up", "--workers", "2");

        if (code == 0)
            code = STAGE_RUN(TRAIN);
        if (code < 0)
            GP_TEST_FAIL("%d descriptors: ended by a signal (%d): %s", (int)limits[i], code, stage_err);
        else if (code > 0)
            stage_check_error("too few descriptors");
        printf("     %d descriptors: exit code %d: %.160s\n", (int)limits[i], code,
               code > 0 ? stage_err : "\n");
        worked += code == 0;
        said += code > 0;
        check_logs_have_no("signal 6");
        check_logs_have_no("Assertion");
        check_logs_have_no("Too many open files (");
        end_well();
    }
    printf("     %d descriptor limits sufficed, %d were refused\n", worked, said);
    CHECK(worked >= 1 && said >= 3);
}

/* Wait until a daemon has closed the descriptors of disconnected clients, except for a few. */
static bool await_descriptors(pid_t pid, int count)
{
    AWAIT(descriptors_of(pid) <= count + 8, 5);
    return descriptors_of(pid) <= count + 8;
}

/* Open `count` silent connections. Return the number that succeeded. */
static int crowd_connect(const char *path, int type, int *fds, int count)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int made = 0;

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    for (int i = 0; i < count; i++) {
        fds[i] = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (connect(fds[i], (struct sockaddr *)&address, sizeof(address)) == 0)
            made++;
    }
    return made;
}

/* Return whether a new client is admitted within the timeout. */
static bool await_open(int64_t timeout_ms)
{
    int64_t deadline = gp_now_ms() + timeout_ms;
    gp_pool *pool = NULL;

    while (gp_pool_open(&pool, &(gp_pool_options){ .attach_only = true }, NULL) != GP_OK &&
           gp_now_ms() < deadline)
        gp_sleep_ms(20);
    gp_pool_close(pool);
    return pool != NULL;
}

/* libzmq's ipc listener aborts the process at the first connection without a free descriptor
 * (proto/channel/accept.c). */
TEST(exhausted_descriptors_end_neither_daemons_nor_clients)
{
    enum { CROWD = 300 };
    static const char *const sockets[] = { "run/default/scheduler", "run/default/w1.1" };
    static const char *const control_sockets[] = { "run/default/scheduler.door", "run/default/w1.1.door" };
    static int fds[2 * CROWD];

    for (int i = 0; i < 2; i++) {
        gp_error err;
        gp_pool *pool;
        gp_status_reply *reply;

        stage_descriptors = 128;
        REQUIRE(stage_up(NULL));
        stage_descriptors = 0;
        REQUIRE_OK(gp_pool_open(&pool, &(gp_pool_options){ .attach_only = true }, &err), err);
        REQUIRE_OK(pool_status(pool, &reply, &err), err);
        uint32_t pid = pool->scheduler_pid;
        pid_t daemon = i == 0 ? (pid_t)pid : (pid_t)reply->workers[0].slot.pid;
        int before = descriptors_of(daemon);

        gp_free(reply);
        CHECK(crowd_connect(in_root(sockets[i]), SOCK_STREAM, fds, CROWD) > 100);
        crowd_connect(in_root(control_sockets[i]), SOCK_SEQPACKET, fds + CROWD, CROWD);
        gp_sleep_ms(300);
        REQUIRE_OK(pool_status(pool, &reply, &err), err); /* connected clients are served */
        CHECK_INT(pid, reply->scheduler_pid);
        CHECK_INT(1, reply->workers[0].slot.incarnation);
        CHECK(process_alive((pid_t)reply->workers[0].slot.pid));
        gp_free(reply);

        /* although the crowd stays connected: silent connections are closed after 2 s */
        CHECK(await_open(15000));
        gp_pool_close(pool);
        for (int f = 0; f < 2 * CROWD; f++)
            close(fds[f]);
        CHECK(await_descriptors(daemon, before));
        CHECK_INT(0, STAGE_RUN(TRAIN));
        check_logs_have_no("signal 6");
        end_well();
    }
}

TEST(lack_of_descriptors_fails_no_queued_job)
{
    enum { CROWD = 300 };
    static const char *const words[] = { "spmd", "--", "true", NULL };
    static int fds[CROWD];
    gp_error err;
    gp_pool *pool;
    gp_job_info info = { .exit_code = -1 };
    uint64_t job;

    stage_descriptors = 128;
    REQUIRE(stage_up(NULL));
    stage_descriptors = 0;
    REQUIRE_OK(gp_pool_open(&pool, &(gp_pool_options){ .attach_only = true }, &err), err);
    crowd_connect(in_root("run/default/scheduler.door"), SOCK_SEQPACKET, fds, CROWD);
    REQUIRE_OK(gp_job_submit(&job, pool, &(gp_job_request){ .words = words }, &err), err);

    /* silent connections are closed after 2 s */
    REQUIRE_OK(gp_job_wait(&info, pool, &job, 1, false, POOLS_TIMEOUT_MS, NULL, &err), err);
    CHECK_TEXT("", info.reason);
    CHECK_INT(GP_JOB_DONE, info.state);
    CHECK_INT(0,
              shell("grep -q 'event=job-unstarted .*Too many open files' state/*/default/log/scheduler.log"));
    gp_pool_close(pool);
    for (int f = 0; f < CROWD; f++)
        close(fds[f]);
    end_well();
}

/* ---- messages ---- */

/* Return a raw connection to a ZeroMQ socket, after the handshake as a DEALER. */
static int zmtp_connect(const char *path)
{
    static const uint8_t ready[] = "\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06"
                                   "DEALER";
    uint8_t greeting[64] = { [0] = 0xff, [8] = 1, [9] = 0x7f, [10] = 3, [12] = 'N', 'U', 'L', 'L' },
            answer[64];
    int fd;

    CHECK_INT(1, crowd_connect(path, SOCK_STREAM, &fd, 1));
    fcntl(fd, F_SETFL, 0);
    CHECK_INT(sizeof(greeting), send(fd, greeting, sizeof(greeting), MSG_NOSIGNAL));
    CHECK_INT(sizeof(answer), recv(fd, answer, sizeof(answer), MSG_WAITALL));
    CHECK_INT(sizeof(ready) - 1, send(fd, ready, sizeof(ready) - 1, MSG_NOSIGNAL));
    return fd;
}

/* Send frames that promise more frames until the daemon closes the
 * connection, or `bytes_max` are sent. */
static size_t endless_send(int fd, uint32_t frame_bytes, size_t bytes_max)
{
    uint8_t *frame = calloc(1, frame_bytes + 9);
    size_t sent = 0;
    ssize_t part = 1;

    frame[0] = 1 | 2; /* more, long */
    for (int i = 0; i < 4; i++)
        frame[5 + i] = (uint8_t)(frame_bytes >> (8 * (3 - i)));
    for (; part > 0 && sent<bytes_max; sent += part> 0 ? (size_t)part : 0)
        part = send(fd, frame + sent % (frame_bytes + 9), frame_bytes + 9 - sent % (frame_bytes + 9),
                    MSG_NOSIGNAL);
    free(frame);
    return sent;
}

/* Send complete two-frame messages that exceed the maximum message size. */
static bool whole_send(int fd, int count)
{
    enum { FRAME = 900000 };
    uint8_t *message = calloc(1, 2 + 1 + 9 + FRAME);
    bool sent = true;

    message[0] = 1; /* more frames follow; a short frame with one byte */
    message[1] = 1;
    message[3] = 2; /* last frame, long */
    for (int i = 0; i < 4; i++)
        message[8 + i] = (uint8_t)(FRAME >> (8 * (3 - i)));
    for (int i = 0; i < count && sent; i++)
        sent = send(fd, message, 12 + FRAME, MSG_NOSIGNAL) == 12 + FRAME;
    free(message);
    return sent;
}

/* libzmq 4.3 keeps the frames of a message until its last one has arrived. */
TEST(a_local_message_that_never_ends_does_not_grow_a_daemon)
{
    enum { SENT_MAX = 200 << 20, GROWTH_KIB_MAX = 16 << 10 };
    static const struct {
        const char *socket;
        uint32_t frame_bytes;
    } cases[] = {
        { "run/default/scheduler", 60000 },  /* too many frames */
        { "run/default/scheduler", 900000 }, /* too many bytes */
        { "run/default/w1.1", 60000 },
    };

    stage_begin();
    REQUIRE(STAGE_RUN("up", "--workers", "1") == 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gp_error err;
        gp_pool *pool;
        gp_status_reply *reply;

        REQUIRE_OK(gp_pool_open(&pool, &(gp_pool_options){ .attach_only = true }, &err), err);
        REQUIRE_OK(pool_status(pool, &reply, &err), err);
        pid_t pid = (pid_t)(i < 2 ? pool->scheduler_pid : reply->workers[0].slot.pid);
        int fd = zmtp_connect(in_root(cases[i].socket));
        long before = pools_own_kib(pid);

        CHECK(whole_send(fd, 6)); /* few: ASan retains what the daemon frees */
        size_t sent = endless_send(fd, cases[i].frame_bytes, SENT_MAX);

        CHECK(sent < SENT_MAX);
        long growth = pools_own_kib(pid) - before;

        printf("     grew by %ld KiB\n", growth);
        CHECK(growth < GROWTH_KIB_MAX);
        close(fd);
        gp_free(reply);
        REQUIRE_OK(pool_status(pool, &reply, &err), err); /* other clients are served */
        gp_free(reply);
        gp_pool_close(pool);
    }
    end_well();
}

/* ---- clients ---- */

typedef struct swarm {
    int ready, go; /* pipe ends */
    pid_t pid;
} swarm;

/* Start a process with `count` handles. It writes one byte for each handle and keeps them until
 * released. */
static swarm swarm_start(int count)
{
    int ready[2], go[2];
    char byte = 'y';

    if (pipe(ready) != 0 || pipe(go) != 0)
        abort();
    signal(SIGPIPE, SIG_IGN);
    fflush(stdout);
    pid_t pid = fork();

    if (pid == 0) {
        close(ready[0]);
        close(go[1]);
        for (int i = 0; i < count; i++) {
            gp_error err;
            gp_pool *pool;

            byte =
                gp_pool_open(&pool, &(gp_pool_options){ .attach_only = true, .timeout_ms = POOLS_TIMEOUT_MS },
                             &err) == GP_OK
                    ? 'y'
                    : 'n';
            if (byte == 'n')
                printf("%s\n", err.message);
            if (write(ready[1], &byte, 1) != 1 || byte == 'n')
                _exit(1);
        }
        _exit(read(go[0], &byte, 1) < 0);
    }
    close(ready[1]);
    close(go[0]);
    return (swarm){ .ready = ready[0], .go = go[1], .pid = pid };
}

/* Release a swarm with a byte instead of end of file: later swarms inherited copies of the pipe. */
static void swarm_end(const swarm *s)
{
    ssize_t ignored = write(s->go, "x", 1);

    (void)ignored;
    close(s->ready);
    close(s->go);
    waitpid(s->pid, NULL, 0);
}

enum { ASKED = 1000 };

/* Measure the time of each reply and sort them in ascending order. */
static void ask_status(double ms[ASKED])
{
    gp_error err;
    gp_pool *pool;

    REQUIRE_OK(gp_pool_open(&pool, &(gp_pool_options){ .attach_only = true }, &err), err);
    for (int i = 0; i < ASKED; i++) {
        gp_status_reply *reply;
        int64_t asked = gp_now_ns();

        REQUIRE_OK(pool_status(pool, &reply, &err), err);
        ms[i] = (double)(gp_now_ns() - asked) * 1e-6;
        gp_free(reply);
    }
    gp_pool_close(pool);
    sort_doubles(ms, ASKED);
}

TEST(a_thousand_simultaneous_clients_are_served)
{
    enum { EACH = 250, SWARMS_MAX = 40, CLIENT_KIB_MAX = 32 };
    static double alone[ASKED], crowded[ASKED];
    swarm swarms[SWARMS_MAX];
    int count = getenv("GRADPOOL_FAULT_LONG") != NULL ? SWARMS_MAX : 4;
    struct rlimit limit;

    getrlimit(RLIMIT_NOFILE, &limit);

    /* long run: as many as the limits allow */
    while (count > 4 && limit.rlim_max < (rlim_t)count * EACH * 2 + 400)
        count--;
    if (limit.rlim_max < (rlim_t)count * EACH * 2 + 400)
        SKIP("%d clients need %d descriptors, the hard limit is %d", count * EACH, count * EACH * 2 + 400,
             (int)limit.rlim_max);
    REQUIRE(stage_up(NULL));
    pid_t scheduler = holder();
    long before = pools_resident_kib(scheduler);
    int64_t began = gp_now_ms();

    for (int i = 0; i < count; i++) /* before this process has a ZeroMQ context */
        swarms[i] = swarm_start(EACH);
    for (int i = 0; i < count; i++)
        for (int c = 0; c < EACH; c++) {
            char byte = 'n';

            if (read(swarms[i].ready, &byte, 1) != 1 || byte != 'y') {
                GP_TEST_FAIL("client %d in swarm %d was not admitted", c, i);
                break;
            }
        }
    double storm = (double)(gp_now_ms() - began) * 1e-3;
    long with = pools_resident_kib(scheduler);

    ask_status(crowded);
    for (int i = 0; i < count; i++) {
        swarm_end(&swarms[i]);
    }
    ask_status(alone);
    printf("     %d clients in %.2f s; status within %.2f ms, 99 %% within %.2f ms, half within %.2f ms "
           "(without them %.2f, "
           "%.2f, %.2f ms); %.1f KiB a client; the scheduler has %ld KiB\n",
           count * EACH, storm, crowded[ASKED - 1], crowded[ASKED * 99 / 100], crowded[ASKED / 2],
           alone[ASKED - 1], alone[ASKED * 99 / 100], alone[ASKED / 2],
           (double)(with - before) / (count * EACH), with);
    if (!GP_SANITIZED) /* sanitizers change the memory usage */
        CHECK(with - before <= (long)CLIENT_KIB_MAX * count * EACH);
    CHECK_INT(0, STAGE_RUN(TRAIN)); /* the clients are gone without leftovers */
    end_well();
}

TEST(client_beyond_the_limit_is_refused_and_a_later_one_admitted)
{
    swarm crowd;
    gp_error err = { 0 };
    gp_pool *pool;
    int in = 0;
    char byte;

    stage_descriptors = 128; /* for the scheduler: enough for about thirty clients */
    REQUIRE(stage_up(NULL));
    stage_descriptors = 0;
    pid_t scheduler = holder();
    int before = descriptors_of(scheduler);

    CHECK(scheduler > 0 && before > 0);
    crowd = swarm_start(200);
    while (read(crowd.ready, &byte, 1) == 1 && byte == 'y')
        in++;
    printf("     %d clients with 128 descriptors\n", in);
    CHECK(in >= 16 && in < 64);
    swarm_end(&crowd);
    CHECK(await_descriptors(scheduler, before));
    int again = 0;

    /* Clients of the first crowd may still be disconnecting. */
    for (int64_t until = gp_now_ms() + POOLS_TIMEOUT_MS;;) {
        crowd = swarm_start(in);
        for (again = 0; again < in && read(crowd.ready, &byte, 1) == 1 && byte == 'y';)
            again++;
        if (again == in || gp_now_ms() > until)
            break;
        swarm_end(&crowd);
    }
    CHECK_INT(in, again);
    CHECK_STATUS(GP_EBUSY, gp_pool_open(&pool, &(gp_pool_options){ .attach_only = true }, &err));
    CHECK_CONTAINS(err.message, "has reached its limit");
    swarm_end(&crowd);
    CHECK_INT(0, STAGE_RUN(TRAIN));
    end_well();
}

/* A process with many handles exits, and the scheduler sees all disconnects in one poll. */
TEST(simultaneous_disconnects_leave_the_pool_running)
{
    enum { CROWD = 320 };
    gp_error err;
    gp_pool *pool;
    gp_status_reply *reply;
    char byte;

    REQUIRE(stage_up(NULL));
    pid_t scheduler = holder();
    swarm crowd = swarm_start(CROWD);

    for (int i = 0; i < CROWD; i++)
        REQUIRE(read(crowd.ready, &byte, 1) == 1 && byte == 'y');
    int with = descriptors_of(scheduler);

    REQUIRE(kill(scheduler, SIGSTOP) == 0);
    swarm_end(&crowd);
    REQUIRE(kill(scheduler, SIGCONT) == 0);
    CHECK(await_descriptors(scheduler, with - 2 * CROWD));
    REQUIRE_OK(gp_pool_open(&pool, &(gp_pool_options){ .attach_only = true }, &err), err);
    REQUIRE_OK(pool_status(pool, &reply, &err), err);
    CHECK_INT(scheduler, reply->scheduler_pid);
    gp_free(reply);
    gp_pool_close(pool);
    CHECK_INT(0, STAGE_RUN(TRAIN));
    check_logs_have_no("Assertion");
    end_well();
}

/* ---- the wall clock ---- */

TEST(work_continues_when_the_clock_jumps_by_days)
{
    static const int64_t jumps[] = { 86400, -86400, 0, -7 * 86400, 3600, 365 * 86400 };
    int64_t zero = 0;

    if (GP_SANITIZED)
        SKIP("a sanitizer must be loaded before this library");
    stage_begin();
    int fd = open(in_root("clock"), O_RDWR | O_CREAT, 0600);

    REQUIRE(fd >= 0 && write(fd, &zero, sizeof(zero)) == sizeof(zero));
    setenv("GP_CLOCK_FILE", in_root("clock"), 1);
    setenv("LD_PRELOAD", in_build("tests/fault_clock.so"), 1);
    static const char *const works[][12] = {
        { "up", "--workers", "2", NULL },
        { "train", "--network", "lenet", "--data", "digits:600", "--max-epochs", "2", "--quiet", NULL },
        { "submit", "--", "train", "--network", "lenet", "--data", "digits:200", "--max-epochs", "1", NULL },
        { "wait", "1", NULL },
        { "spmd", "-n", "2", "--", "sleep", "0.3", NULL },
        { "jobs", "--all", NULL },
        { "down", NULL },
    };
    int64_t began = gp_now_ms();

    for (size_t w = 0; w < sizeof(works) / sizeof(works[0]); w++) {
        pid_t child = stage_start(NULL, works[w]);
        siginfo_t info = { .si_pid = 0 };

        for (int i = 0; waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                        info.si_pid == 0 && i < 3000;
             i++) {
            CHECK(pwrite(fd, &jumps[i % 6], sizeof(jumps[0]), 0) == sizeof(jumps[0]));
            gp_sleep_ms(10);
        }
        int code = stage_finish(child, 0);

        if (code != 0)
            GP_TEST_FAIL("%s: %d: %s", works[w][0], code, stage_err);
    }
    printf("     %.1f s\n", (double)(gp_now_ms() - began) * 1e-3);
    unsetenv("LD_PRELOAD");
    unsetenv("GP_CLOCK_FILE");
    close(fd);
    stage_check_left();
    stage_end();
}

/* ---- directories ---- */

static void put_socket(const char *name)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", in_root(name));
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
        abort();
    close(fd); /* the name remains, as after kill -9 */
}

TEST(leftovers_of_a_crashed_pool_are_taken_over)
{
    stage_begin();
    mkdir(in_root("run/default"), 0700);
    write_file("run/default/lock", "1\n"); /* a running process of another program */
    write_file("run/default/start", "");
    write_file("run/default/record", "workers 7000000000\nidle");
    put_socket("run/default/scheduler");
    put_socket("run/default/scheduler.door");
    put_socket("run/default/w1.1");
    put_socket("run/default/w1.1.door");
    put_socket("run/default/w63.4294967295.door");
    write_file("run/default/w2.1.door", "no socket");
    write_file("run/default/w3.1.door.0000ff", "a temporary name");
    CHECK_INT(0, STAGE_RUN("up", "--workers", "2"));
    CHECK_INT(0, STAGE_RUN(TRAIN));
    end_well();
}

static void check_refused(const char *what, const char *words)
{
    int code = STAGE_RUN("up", "--workers", "2");

    if (code <= 0)
        GP_TEST_FAIL("%s: exit code %d", what, code);
    else
        stage_check_error(what);
    if (strstr(stage_err, words) == NULL)
        GP_TEST_FAIL("%s: no \"%s\" in: %s", what, words, stage_err);
}

TEST(directories_of_other_users_are_refused_with_the_reason)
{
    stage_begin();
    CHECK(symlink("/tmp", in_root("run/default")) == 0);
    check_refused("a link in place of the pool", "run/default");
    unlink(in_root("run/default"));
    write_file("run/default", "a file");
    check_refused("a file in place of the pool", "run/default");
    unlink(in_root("run/default"));
    chmod(in_root("run"), 0777);
    check_refused("a directory that others may write", "/run");
    chmod(in_root("run"), 0700);
    if (geteuid() == 0) {
        CHECK(chown(in_root("run"), 65534, 65534) == 0);
        check_refused("another user's directory", "/run");
        CHECK(chown(in_root("run"), 0, 0) == 0);
    }
    CHECK_INT(0, STAGE_RUN("up", "--workers", "2"));
    CHECK_INT(0, STAGE_RUN("down"));

    CHECK_INT(
        0, shell("cd state/*/default/log && rm scheduler.log && ln -s %s scheduler.log", in_root("target")));
    check_refused("a link in place of the scheduler's log", "is a symbolic link; remove it");
    CHECK(access(in_root("target"), F_OK) != 0);
    CHECK_INT(0, shell("rm state/*/default/log/scheduler.log"));
    CHECK_INT(0, STAGE_RUN("up", "--workers", "2"));
    end_well();
}

/* ---- disks ---- */

static bool write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

    if (fd >= 0)
        close(fd);
    return done;
}

/* Mount a file system with `kib` KiB over a folder, in a child that exits with the verdict. */
static bool tiny_disk(const char *folder, int kib)
{
    char map[60], size[40];
    uid_t uid = geteuid();
    gid_t gid = getegid();

    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
        return false;
    snprintf(map, sizeof(map), "0 %d 1\n", (int)uid);
    if (!write_text("/proc/self/uid_map", map) || !write_text("/proc/self/setgroups", "deny"))
        return false;
    snprintf(map, sizeof(map), "0 %d 1\n", (int)gid);
    snprintf(size, sizeof(size), "size=%dk,mode=0700", kib);
    return write_text("/proc/self/gid_map", map) &&
           mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("tmpfs", folder, "tmpfs", 0, size) == 0;
}

static int disk_case(const char *name, int kib)
{
    fflush(stdout);
    pid_t child = fork();

    if (child == 0) {
        gp_test_failures = 0;
        if (!tiny_disk(in_root(name), kib))
            _exit(77);
        int code = STAGE_RUN("up", "--workers", "2");

        if (code == 0)
            code = STAGE_RUN("train", "--network", "lenet", "--data", "digits:120", "--max-epochs", "2",
                             "--mini-batch-size", "60", "--checkpoint-path", in_root("state/ck"), "--quiet");
        if (code < 0)
            GP_TEST_FAIL("%s of %d KiB: ended by a signal (%d): %s", name, kib, code, stage_err);
        else if (code > 0)
            stage_check_error(name);
        printf("     %s of %d KiB: exit code %d: %.150s\n", name, kib, code, stage_err);
        STAGE_RUN("down");
        for (int i = 0; i < POOLS_TIMEOUT_MS && stage_signal_all(0, false) > 0; i++)
            gp_sleep_ms(1);
        CHECK_INT(0, stage_signal_all(0, true));
        fflush(stdout);
        _exit(gp_test_failures != 0);
    }
    return child_exit_code(child);
}

TEST(full_disk_gives_one_error_or_a_training_without_checkpoints)
{
    static const int sizes[] = { 4, 64, 256 };
    static const char *const folders[] = { "run", "state", "w" };

    stage_begin();
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (int which = 0; which < 3; which++) {
            int code = disk_case(folders[which], sizes[i]);

            if (code == 77) {
                stage_end();
                SKIP("user namespaces are not permitted here: cannot mount small file systems");
            }
            CHECK_INT(0, code);
        }
    stage_end();
}

/* Run a sweep whose models are larger than the disk with its folder. */
static void sweep_on_tiny_disk(void)
{
    CHECK_INT(0, STAGE_RUN("up", "--workers", "2"));
    CHECK_INT(1, STAGE_RUN("sweep", "seed=1,2,3,4", "--max-failures", "2", "--max-concurrent", "1",
                           "--folder", "s", "--", "train", "--network", "lenet", "--data", "digits:120",
                           "--epochs", "1", "--mini-batch-size", "60"));
    if (strstr(stage_err, "too many trials failed") == NULL || strstr(stage_err, "model.onnx") == NULL)
        GP_TEST_FAIL("no reason with model.onnx in: %s", stage_err);
    CHECK_INT(0, STAGE_RUN("sweep", "show", "s"));
    if (strstr(stage_out, "2 trials: 0 done, 0 stopped early, 2 failed") == NULL)
        GP_TEST_FAIL("not two failed trials: %s", stage_out);
    STAGE_RUN("down");
}

/* Check a function in a child whose folder w is on a disk of `kib` KiB. false: such a disk is not
 * permitted. */
static bool on_tiny_disk(void (*check)(void), int kib)
{
    enum { NOT_PERMITTED = 77 };

    stage_begin();
    fflush(stdout);
    pid_t child = fork();

    if (child == 0) {
        gp_test_failures = 0;
        if (!tiny_disk(in_root("w"), kib))
            _exit(NOT_PERMITTED);
        check();
        for (int i = 0; i < POOLS_TIMEOUT_MS && stage_signal_all(0, false) > 0; i++)
            gp_sleep_ms(1);
        CHECK_INT(0, stage_signal_all(0, true));
        fflush(stdout);
        _exit(gp_test_failures != 0);
    }
    int code = child_exit_code(child);

    stage_end();
    if (code == NOT_PERMITTED)
        return false;
    CHECK_INT(0, code);
    return true;
}

TEST(a_model_larger_than_the_disk_fails_its_trial)
{
    if (!on_tiny_disk(sweep_on_tiny_disk, 400)) /* a model of LeNet has 506 KiB */
        SKIP("user namespaces are not permitted here: cannot mount small file systems");
}

/* Fill the disk of a training before it writes its model. */
static void train_on_disk_that_fills(void)
{
    static const char *const words[] = { "train",      "--network", "lenet",  "--data",
                                         "digits:120", "--epochs",  "100000", "--mini-batch-size",
                                         "60",         "--folder",  "r",      "--quiet",
                                         NULL };
    static const char zeros[1024];
    struct stat metrics = { 0 };

    CHECK_INT(0, STAGE_RUN("up", "--workers", "2"));
    pid_t child = stage_start(NULL, words);

    AWAIT(stat(in_root("w/r/metrics.jsonl"), &metrics) == 0 && metrics.st_size > 0, 20);
    int fd = open(in_root("w/filler"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    while (write(fd, zeros, sizeof(zeros)) > 0)
        ;
    kill(child, SIGINT);
    CHECK_INT(1, stage_finish(child, 0));
    CHECK_INT(0, STAGE_RUN("runs", "--json"));
    if (strstr(stage_out, "\"state\": \"failed\"") == NULL || strstr(stage_out, "No space left") == NULL)
        GP_TEST_FAIL("no state 'failed' with its reason in: %s", stage_out);
    close(fd);
    STAGE_RUN("down");
}

TEST(run_that_fails_on_a_full_disk_keeps_its_state_and_reason)
{
    if (!on_tiny_disk(train_on_disk_that_fills, 2048))
        SKIP("user namespaces are not permitted here: cannot mount small file systems");
}

/* ---- single files ---- */

typedef struct file_case {
    const char *fail; /* as in tests/fault/failing.h */
    bool works;
    const char *says; /* expected on standard error */
} file_case;

static void check_file(const file_case *c)
{
    stage_begin();
    setenv("GP_FAIL", c->fail, 1);
    setenv("GP_FAIL_TOLD", in_root("struck"), 1);
    setenv("LD_PRELOAD", in_build("tests/failing.so"), 1);
    CHECK_INT(0, STAGE_RUN("up", "--workers", "2"));
    int code = STAGE_RUN("train", "--network", "lenet", "--data", "digits:240", "--max-epochs", "2",
                         "--mini-batch-size", "60", "--checkpoint-path", "ck");

    if (c->works ? code != 0 : code <= 0)
        GP_TEST_FAIL("%s: exit code %d: %s", c->fail, code, stage_err);
    if (!c->works)
        stage_check_error(c->fail);
    if (strstr(stage_err, c->says) == NULL && strstr(stage_out, c->says) == NULL)
        GP_TEST_FAIL("%s: no \"%s\" in: %s", c->fail, c->says, stage_err);
    if (access(in_root("struck"), F_OK) != 0)
        GP_TEST_FAIL("%s did not fail", c->fail);
    CHECK_INT(0, STAGE_RUN("down"));
    unsetenv("LD_PRELOAD");
    unsetenv("GP_FAIL");
    unsetenv("GP_FAIL_TOLD");
    stage_check_left();
    stage_end();
}

TEST(unwritable_file_affects_only_itself)
{
    static const file_case cases[] = {
        { "write:3+:ENOSPC:metrics.jsonl", true, "lines of metrics: No space left" },
        { "write:1+:ENOSPC:workers.jsonl", true, "lines of metrics: No space left" },
        { "write:2+:ENOSPC:events.out", true, "lines of metrics: No space left" },
        { "write:1+:ENOSPC:runs.jsonl", true, "the run is missing in `gradpool runs`: cannot write" },
        { "link:1+:ENOSPC:model.onnx", false, "model.onnx" },
        { "mkdir:1+:EROFS:gradpool-runs", false, "gradpool-runs" },
        { "write:1+:ENOSPC:scheduler.log", true, "" },
        { "write:1+:EIO:worker-1.log", true, "" },
        { "fsync:1+:EIO:/ck/", true, "the training continues" },
        { "rename:1+:EIO:/ck/", true, "the training continues" },
        { "fallocate:1+:ENOSPC:/ck/", true, "the training continues" },
    };

    if (GP_SANITIZED)
        SKIP("a sanitizer must be loaded before this library");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_file(&cases[i]);
}

/* ---- versions ---- */

static void check_other_version(const char *control_socket, uint32_t role)
{
    gp_control_socket_hello hello = {
        .protocol_min = 90, .protocol_max = 99, .role = role, .pid = (uint32_t)getpid()
    };
    gp_control_socket_reply reply;
    gp_error err = { 0 };
    int fd = -1;

    memcpy(hello.session, "0123456789abcdef", 16);
    CHECK_STATUS(GP_EVERSION, gp_control_socket_connect(&fd, &reply, in_root(control_socket), &hello,
                                                        POOLS_TIMEOUT_MS, &err));
    CHECK_CONTAINS(err.message, "the client supports 90 to 99, the daemon 1 to 1");
    if (role == GP_ROLE_CLIENT)
        CHECK_CONTAINS(err.message, "install the same version of gradpool, or end the daemon: kill ");
}

TEST(other_versions_are_refused_by_name)
{
    REQUIRE(stage_up(NULL));
    check_other_version("run/default/scheduler.door", GP_ROLE_CLIENT);
    check_other_version("run/default/scheduler.door", GP_ROLE_WORKER);
    check_other_version("run/default/w1.1.door", GP_ROLE_CLIENT);
    check_other_version("run/default/w1.1.door", GP_ROLE_SCHEDULER);
    check_other_version("run/default/w2.1.door", GP_ROLE_WORKER);
    CHECK_INT(0, STAGE_RUN(TRAIN));
    end_well();
}
