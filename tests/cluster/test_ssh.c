/* test_ssh.c: jobs on a real sshd (tests/cluster/ssh-hosts), driven through the engine `ssh`. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cluster/job_folder.h"
#include "client/cluster/profile.h"
#include "client/cluster/ssh.h"
#include "client/cluster/ssh_jobs.h"
#include "common/base/clock.h"
#include "common/base/memory/alloc.h"
#include "common/base/system/file.h"
#include "tests/cluster/folders.h"
#include "tests/gp_test.h"

enum { WAIT_MS = 60000, PROCESSES_MAX = 64 };

#define CANARY "canary-5d1c"

static const cluster_engine *const engine = &cluster_engine_ssh;
static gp_error err;
static gp_profile profile;
static cluster_listing listing;
static bool started;

TEARDOWN()
{
    cluster_listing_deinit(&listing);
}

static void put(const char *name, const char *text)
{
    FILE *file = fopen(scratch_path(name), "we");

    if (file == NULL || fputs(text, file) < 0 || fclose(file) != 0 || chmod(scratch_path(name), 0700) != 0)
        GP_TEST_FAIL("cannot write %s", name);
}

static bool exists(const char *name)
{
    return access(scratch_path(name), F_OK) == 0;
}

__attribute__((destructor)) static void hosts_stop(void)
{
    if (started)
        shell("%s/tests/cluster/ssh-hosts stop %s/ssh", getenv("GP_SOURCE_DIR"), scratch_dir);
    /* jobs of a test that failed */
    for (int i = 0; started && i < 500 && leftovers_kill(scratch_dir) > 0; i++)
        gp_sleep_ms(10);
}

/* Wait until no other run of this test is left: its jobs would occupy the same host names. The
 * kernel releases the lock on the program sshd when this process exits. */
static void run_alone(void)
{
    char path[PATH_MAX] = "";
    FILE *programs = fopen(scratch_path("programs"), "re");
    int fd = -1;

    if (programs != NULL && fgets(path, sizeof(path), programs) != NULL) {
        path[strcspn(path, "\n")] = '\0';
        fd = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (programs != NULL)
        fclose(programs);
    if (fd < 0 || flock(fd, LOCK_EX) != 0)
        GP_TEST_FAIL("cannot lock '%s'", path);
}

/* Start sshd once. NULL: it runs; otherwise the reason to skip the test.
 *
 * The program ssh and the program gradpool of the profile record their words and environments. With
 * a file `slow`, the reply waits until the file is removed. With a file `late`, the request waits
 * until the connection is lost. */
static const char *hosts_start(void)
{
    static char path[8192];
    char text[2000];

    if (started)
        return NULL;
    if (shell("PATH=$PATH:/usr/sbin:/sbin; command -v sshd ssh ssh-keygen > programs") != 0)
        return "ssh is not installed (packages openssh-server, openssh-client)";
    started = true;
    run_alone();
    if (shell("%s/tests/cluster/ssh-hosts start %s/ssh && mkdir work", getenv("GP_SOURCE_DIR"),
              scratch_dir) != 0) {
        GP_TEST_FAIL("sshd does not start");
        return NULL;
    }
    snprintf(path, sizeof(path), "%s/bin:%s/ssh/bin:%s", scratch_dir, scratch_dir, getenv("PATH"));
    setenv("PATH", path, 1);
    setenv("GP_TEST_FOLDER", scratch_dir, 1);
    mkdir(scratch_path("bin"), 0700);
    snprintf(text, sizeof(text),
             "#!/bin/sh\n{ printf '%%s\\n' \"$@\"; env; } >> %s/seen\nexec %s/ssh/bin/ssh \"$@\"\n",
             scratch_dir, scratch_dir);
    put("bin/ssh", text);
    snprintf(text, sizeof(text),
             "#!/bin/sh\ncd %s\n{ printf '%%s\\n' \"$@\"; env; } >> seen\n"
             "if [ -e late ]; then cat > late.in; trap '' PIPE; while echo 2> late.error; do sleep 0.05; "
             "done; %s/bin/gradpool \"$@\" < late.in; touch late.done; exit; fi\n"
             "if [ -e slow ]; then %s/bin/gradpool \"$@\" > slow.out; touch slow.done\n"
             "while [ -e slow ]; do sleep 0.05; done; cat slow.out; exit; fi\n"
             "exec %s/bin/gradpool \"$@\"\n",
             scratch_dir, getenv("GP_BUILD_DIR"), getenv("GP_BUILD_DIR"), getenv("GP_BUILD_DIR"));
    put("gradpool's", text); /* a name that needs quotes */
    return NULL;
}

/* Set the profile: one core for each job. */
static void use(const char *hosts, const char *program)
{
    profile = (gp_profile){ .name = "lab", .type = GP_PROFILE_SSH, .cores = 1 };
    snprintf(profile.hosts, sizeof(profile.hosts), "%s", hosts);
    snprintf(profile.folder, sizeof(profile.folder), "%s/the jobs", scratch_dir);
    snprintf(profile.gradpool, sizeof(profile.gradpool), "%s", program);
}

#define HOSTS(hosts)                                                                                         \
    do {                                                                                                     \
        const char *reason_ = hosts_start();                                                                 \
        if (reason_ != NULL)                                                                                 \
            SKIP("%s", reason_);                                                                             \
        use(hosts, scratch_path("gradpool's"));                                                              \
    } while (0)

/* ---- jobs ---- */

typedef struct job {
    char name[CLUSTER_NAME_BYTES], folder[256], id[CLUSTER_ID_BYTES];
    gp_buffer text; /* command.json */
} job;

#define SLEEP   "parfor", "-n", "1", "1000", "--", "sleep", "{}"
#define NOTHING "version"

/* Prepare a job with this command. */
static void job_init(job *out, const char *const *words)
{
    const char *variables[] = { "GP_TEST_SECRET=" CANARY };
    char directory[PATH_MAX];
    cluster_command command = {
        .engine = "ssh", .umask = 022, .variables = variables, .variable_count = 1, .directory = directory
    };

    snprintf(directory, sizeof(directory), "%s/work", scratch_dir);
    command.words = (const char **)(uintptr_t)words;
    while (words[command.word_count] != NULL)
        command.word_count++;
    gp_buffer_init(&out->text, CLUSTER_COMMAND_JSON_MAX);
    if (cluster_name_new(out->name, &err) != GP_OK ||
        cluster_command_format(&command, &out->text, &err) != GP_OK)
        GP_TEST_FAIL("%s", err.message);
    snprintf(out->folder, sizeof(out->folder), "%s/the jobs/%s", scratch_dir, out->name);
    out->id[0] = '\0';
}

#define JOB(job, ...) job_init(job, (const char *const[]){ __VA_ARGS__, NULL })

static gp_status job_launch(job *j)
{
    const cluster_launch launch = { .name = j->name,
                                    .folder = j->folder,
                                    .command = gp_buffer_text(&j->text),
                                    .command_bytes = j->text.bytes };

    return engine->launch(&profile, &launch, j->id, &err);
}

static void list(void)
{
    cluster_listing_deinit(&listing);
    if (engine->list(&profile, &listing, &err) != GP_OK)
        GP_TEST_FAIL("list: %s", err.message);
}

/* Return the entry of a job in the last listing; NULL: it has none.
 *   count  set to the number of its entries */
static const cluster_entry *job_entry(const job *j, int *count)
{
    const cluster_entry *found = NULL;

    *count = 0;
    for (size_t i = 0; i < listing.count; i++)
        if (strcmp(listing.entries[i].name, j->name) == 0) {
            found = &listing.entries[i];
            ++*count;
        }
    return found;
}

/* List the jobs, and return the entry of one. */
static const cluster_entry *job_find(const job *j, int *count)
{
    list();
    return job_entry(j, count);
}

static bool job_is(const job *j, cluster_entry_state state)
{
    int count;
    const cluster_entry *entry = job_find(j, &count);

    return count == 1 && entry->state == state;
}

/* Wait until a file of the job folder exists. */
static bool job_wait_file(const job *j, const char *name)
{
    char path[400];

    snprintf(path, sizeof(path), "%s/%s", j->folder, name);
    for (int64_t end_ms = gp_now_ms() + WAIT_MS; gp_now_ms() < end_ms; gp_sleep_ms(20))
        if (access(path, F_OK) == 0)
            return true;
    GP_TEST_FAIL("no file %s", path);
    shell("cat '%s'/engine.out '%s'/log", j->folder, j->folder);
    return false;
}

static bool wait_exists(const char *name)
{
    for (int64_t end_ms = gp_now_ms() + WAIT_MS; gp_now_ms() < end_ms; gp_sleep_ms(20))
        if (exists(name))
            return true;
    GP_TEST_FAIL("no file %s", name);
    return false;
}

/* List the processes of a job; return their number. */
static int job_processes(const job *j, pid_t pids[PROCESSES_MAX])
{
    ssh_processes processes;
    int count = 0;

    if (ssh_processes_read(&processes, &err) != GP_OK)
        GP_TEST_FAIL("%s", err.message);
    for (size_t i = 0; i < processes.count; i++)
        if (strcmp(processes.list[i].name, j->name) == 0 && count < PROCESSES_MAX)
            pids[count++] = processes.list[i].pid;
    ssh_processes_deinit(&processes);
    return count;
}

static bool job_wait_gone(const job *j)
{
    pid_t pids[PROCESSES_MAX];

    for (int64_t end_ms = gp_now_ms() + WAIT_MS; gp_now_ms() < end_ms; gp_sleep_ms(20))
        if (job_processes(j, pids) == 0)
            return true;
    GP_TEST_FAIL("job %s has processes", j->name);
    return false;
}

/* Kill a job of a test that has ended with it. */
static void job_kill(job *j)
{
    pid_t pids[PROCESSES_MAX];

    for (int count; (count = job_processes(j, pids)) > 0; gp_sleep_ms(10))
        for (int i = 0; i < count; i++)
            kill(pids[i], SIGKILL);
    gp_buffer_deinit(&j->text);
}

/* Kill the ssh clients of this test. Return their number. */
static int clients_kill(void)
{
    static char text[1 << 16];
    const char *config = scratch_path("ssh/ssh_config");
    DIR *all = opendir("/proc");
    int count = 0;

    for (struct dirent *entry; all != NULL && (entry = readdir(all)) != NULL;) {
        int pid = atoi(entry->d_name);
        ssize_t got = pid > 1 ? leftovers_read(pid, "cmdline", text, sizeof(text)) : -1;

        if (got > 0 && memmem(text, (size_t)got, config, strlen(config) + 1) != NULL)
            count += kill(pid, SIGKILL) == 0;
    }
    if (all != NULL)
        closedir(all);
    return count;
}

/* Launch a job in a child process, whose exit code is the status. */
static pid_t job_launch_child(job *j)
{
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid == 0)
        _exit((int)job_launch(j));
    return pid;
}

static int child_wait(pid_t pid)
{
    int state = 0;

    waitpid(pid, &state, 0);
    return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

/* ---- tests ---- */

TEST(job_runs_and_leaves_its_result)
{
    static char log[65536], piece[65536];
    const char *odd = "it's \"a\"  b\n$HOME `id` \\ *";
    cluster_facts facts = { 0 };
    uint8_t *text = NULL;
    size_t got = 0, rest = 0, bytes = 0;
    char path[400], want[100];
    job j;

    HOSTS("h1,h2");
    JOB(&j, "parfor", "-n", "1", odd, "--", "printf", "[%s]", "{}");
    REQUIRE_OK(job_launch(&j), err);
    snprintf(want, sizeof(want), "h1-%.8s", j.name + 3);
    CHECK_TEXT(want, j.id);
    REQUIRE(job_wait_file(&j, "result.json"));
    REQUIRE(job_wait_gone(&j));
    CHECK(job_is(&j, CLUSTER_ENTRY_ENDED));
    REQUIRE_OK(engine->facts(&profile, j.name, &facts, &err), err);
    CHECK_INT(1, facts.attempt);
    CHECK(facts.begun && facts.has_result && !facts.canceled);
    CHECK_INT(0, facts.exit_code);
    CHECK_TEXT("finished", facts.reason);
    CHECK(facts.begin_ms > 0 && facts.end_ms >= facts.begin_ms);

    /* The log in two pieces; the second ends at the end of the file. */
    snprintf(path, sizeof(path), "%s/log", j.folder);
    REQUIRE_OK(gp_file_read(&text, &bytes, path, sizeof(log), &err), err);
    CHECK_STATUS(GP_OK, engine->read(&profile, j.name, "log", 0, log, 20, &got, &err));
    CHECK_INT(20, got);
    CHECK_STATUS(GP_OK, engine->read(&profile, j.name, "log", 20, piece, sizeof(piece) - 20, &rest, &err));
    memcpy(log + got, piece, rest);
    CHECK_INT(bytes, got + rest);
    CHECK(memcmp(log, text, bytes) == 0);
    snprintf(want, sizeof(want), "[%s]", odd);
    CHECK_CONTAINS(log, want);
    gp_free(text);
    CHECK_STATUS(GP_ENOENT, engine->read(&profile, j.name, "none", 0, log, 20, &got, &err));
    CHECK_STATUS(GP_EINVAL, engine->read(&profile, j.name, "../../ssh/user", 0, log, 20, &got, &err));

    /* The command arrived whole; its secret is nowhere else. */
    snprintf(path, sizeof(path), "%s/command.json", j.folder);
    REQUIRE_OK(gp_file_read(&text, &bytes, path, CLUSTER_COMMAND_JSON_MAX, &err), err);
    CHECK(bytes == j.text.bytes && memcmp(text, j.text.data, bytes) == 0);
    gp_free(text);
    CHECK_INT(1, shell("grep -r " CANARY " . --exclude=command.json"));
    CHECK_INT(0, shell("grep -q ssh-host seen && grep -q BatchMode=yes seen"));
    CHECK_INT(
        0, shell("find 'the jobs' -perm /077 ! -path '*/attempts/*' ! -name metrics.jsonl > open; cat open; "
                 "! [ -s open ]"));
    gp_buffer_deinit(&j.text);
}

/* The jobs of this test sleep; the last ones are canceled. */
TEST(each_host_runs_one_job_at_a_time)
{
    cluster_facts facts = { 0 };
    job a, b, c, d;
    pid_t first, second;
    int count, lock, codes[2];

    HOSTS("h1,h2");
    JOB(&a, SLEEP);
    JOB(&b, SLEEP);
    JOB(&c, SLEEP);
    JOB(&d, SLEEP);
    REQUIRE_OK(job_launch(&a), err);
    /* two launches at once: one gets the host that is left, and none starts a job while the folder
     * is locked */
    lock = open(scratch_path("the jobs/.ssh-lock"), O_RDWR | O_CLOEXEC);
    REQUIRE(lock >= 0 && gp_file_lock(lock) == GP_OK);
    first = job_launch_child(&b);
    second = job_launch_child(&c);
    gp_sleep_ms(1500);
    CHECK(access(b.folder, F_OK) != 0 && access(c.folder, F_OK) != 0);
    flock(lock, LOCK_UN); /* the children have the descriptor, too */
    close(lock);
    codes[0] = child_wait(first);
    codes[1] = child_wait(second);
    CHECK((codes[0] == GP_OK && codes[1] == GP_EBUSY) || (codes[0] == GP_EBUSY && codes[1] == GP_OK));
    CHECK_STATUS(GP_EBUSY, job_launch(&d));
    CHECK_CONTAINS(err.message, "all hosts of profile 'lab' are busy: h1: runs gp-");
    CHECK_CONTAINS(err.message, "; h2: runs gp-");
    CHECK_CONTAINS(err.message, a.name);
    CHECK(job_find(&d, &count) == NULL);
    CHECK(job_entry(codes[0] == GP_OK ? &c : &b, &count) == NULL);
    const cluster_entry *entry = job_entry(codes[0] == GP_OK ? &b : &c, &count);

    REQUIRE(entry != NULL);
    CHECK_INT(1, count);
    CHECK_TEXT("RUNNING on h2", entry->text);

    entry = job_entry(&a, &count);
    REQUIRE(entry != NULL);
    CHECK_TEXT("RUNNING on h1", entry->text);
    REQUIRE(job_wait_file(&a, "attempts/1/begin.json"));
    CHECK_STATUS(GP_OK, engine->mark(&profile, a.name, &err));
    CHECK_STATUS(GP_OK, engine->cancel(&profile, entry, &err));
    REQUIRE(job_wait_gone(&a));
    CHECK_STATUS(GP_OK, engine->facts(&profile, a.name, &facts, &err));
    CHECK(facts.canceled && facts.has_result);
    CHECK_TEXT("canceled", facts.reason);
    entry = job_find(&a, &count);
    REQUIRE(entry != NULL);
    CHECK_INT(CLUSTER_ENTRY_ENDED, entry->state);
    CHECK_STATUS(GP_OK, engine->cancel(&profile, entry, &err)); /* harmless */
    /* an unknown job */
    CHECK_STATUS(GP_ENOENT, engine->mark(&profile, d.name, &err));
    CHECK_STATUS(GP_OK, engine->facts(&profile, d.name, &facts, &err));
    CHECK(facts.attempt == 0 && !facts.begun);
    job_kill(&a);
    job_kill(&b);
    job_kill(&c);
    job_kill(&d);
}

TEST(time_limit_ends_the_job)
{
    cluster_facts facts = { 0 };
    job j;

    HOSTS("h4");
    strcpy(profile.time, "2s");
    JOB(&j, SLEEP);
    REQUIRE_OK(job_launch(&j), err);
    REQUIRE(job_wait_file(&j, "result.json"));
    REQUIRE_OK(cluster_folder_facts(j.folder, &facts, &err), err);
    CHECK_TEXT("time limit; the job has no checkpoints, so it is not requeued", facts.reason);
    CHECK(facts.exit_code != 0);
    REQUIRE(job_wait_gone(&j));
    gp_buffer_deinit(&j.text);
}

/* Send a signal to the processes of a job that run job-attempt. Return their number. */
static int attempt_signal(const job *j, int number)
{
    static char text[1 << 12];
    pid_t pids[PROCESSES_MAX];
    int count = job_processes(j, pids), sent = 0;

    for (int i = 0; i < count; i++) {
        ssize_t got = leftovers_read(pids[i], "cmdline", text, sizeof(text));

        if (got > 0 && memmem(text, (size_t)got, "job-attempt", strlen("job-attempt")) != NULL)
            sent += kill(pids[i], number) == 0;
    }
    return sent;
}

/* The processes of the attempt are killed at once; its command is not, and still counts as the
 * job. */
TEST(killed_attempt_is_listed_until_its_processes_are_gone)
{
    pid_t pids[PROCESSES_MAX];
    ssh_record record = { .pid = 0 };
    int count;
    job j;

    HOSTS("h3");
    JOB(&j, SLEEP);
    REQUIRE_OK(job_launch(&j), err);
    REQUIRE(job_wait_file(&j, "job.json"));
    REQUIRE_OK(ssh_record_read(&record, j.folder, &err), err);
    REQUIRE(record.pid > 0);
    /* stopped first, because each of them ends the job when the other is gone */
    CHECK_INT(2, attempt_signal(&j, SIGSTOP));
    CHECK_INT(2, attempt_signal(&j, SIGKILL));
    for (int i = 0; i < 500 && kill(record.pid, 0) == 0; i++)
        gp_sleep_ms(10);
    CHECK(job_processes(&j, pids) > 0);
    const cluster_entry *entry = job_find(&j, &count);

    REQUIRE(entry != NULL);
    CHECK_INT(CLUSTER_ENTRY_RUNNING, entry->state);
    CHECK_STATUS(GP_OK, engine->cancel(&profile, entry, &err));
    CHECK_INT(0, job_processes(&j, pids));
    CHECK(job_is(&j, CLUSTER_ENTRY_ENDED));

    /* The id of a process that began later, and the name of another machine. */
    record.pid = getpid();
    record.start_time = 1;
    REQUIRE_OK(ssh_record_write(&record, j.folder, &err), err);
    CHECK(job_is(&j, CLUSTER_ENTRY_ENDED));
    snprintf(record.boot, sizeof(record.boot), "before");
    snprintf(record.machine, sizeof(record.machine), "elsewhere");
    REQUIRE_OK(ssh_record_write(&record, j.folder, &err), err);
    CHECK_STATUS(GP_ESTATE, engine->list(&profile, &listing, &err));
    CHECK_CONTAINS(err.message, "was launched on 'elsewhere'");
    job_kill(&j);
    CHECK_INT(0, shell("rm -r '%s'", j.folder));
}

TEST(lost_connection_neither_doubles_nor_loses_a_launch)
{
    char id[CLUSTER_ID_BYTES];
    pid_t child;
    int count;
    job j, late;

    HOSTS("h1");
    /* after the start of the job, before the reply */
    JOB(&j, SLEEP);
    put("slow", "");
    child = job_launch_child(&j);
    REQUIRE(wait_exists("slow.done"));
    CHECK(clients_kill() > 0);
    CHECK_INT(GP_EPEER, child_wait(child));
    unlink(scratch_path("slow"));
    REQUIRE(job_wait_file(&j, "attempts/1/begin.json"));
    const cluster_entry *entry = job_find(&j, &count);

    REQUIRE(entry != NULL);
    CHECK_INT(1, count);
    snprintf(id, sizeof(id), "%s", entry->id);
    /* the repeated launch finds the job */
    CHECK_STATUS(GP_OK, job_launch(&j));
    CHECK_TEXT(id, j.id);
    CHECK_INT(1, shell("test -e '%s'/attempts/2", j.folder));
    CHECK_INT(1, shell("grep -c 'attempt 2' '%s'/log > count", j.folder));
    job_kill(&j);

    /* before the start: the connection is gone when gradpool starts, so it starts no job */
    JOB(&late, NOTHING);
    put("late", "");
    child = job_launch_child(&late);
    REQUIRE(wait_exists("late.in"));
    CHECK(clients_kill() > 0);
    CHECK_INT(GP_EPEER, child_wait(child));
    REQUIRE(wait_exists("late.done"));
    unlink(scratch_path("late"));
    CHECK(access(late.folder, F_OK) != 0);
    CHECK(job_find(&late, &count) == NULL);
    CHECK_STATUS(GP_OK, job_launch(&late));
    REQUIRE(job_wait_file(&late, "result.json"));
    CHECK_STATUS(GP_OK, job_launch(&late)); /* it has ended, and does not run again */
    REQUIRE(job_wait_gone(&late));
    CHECK(job_is(&late, CLUSTER_ENTRY_ENDED));
    CHECK_INT(1, shell("test -e '%s'/attempts/2", late.folder));
    gp_buffer_deinit(&late.text);
}

TEST(faults_of_hosts_name_the_host_and_a_fix)
{
    job j;

    HOSTS("wrong");
    JOB(&j, NOTHING);
    CHECK_STATUS(GP_EPERM, job_launch(&j));
    CHECK_CONTAINS(err.message, "wrong: the host key has changed");
    use("h1,down,h2", scratch_path("gradpool's"));
    CHECK_STATUS(GP_EIO, engine->list(&profile, &listing, &err));
    CHECK_CONTAINS(err.message, "down: ");
    CHECK_CONTAINS(err.message, "Connection refused");
    CHECK(strchr(err.message, '?') == NULL);
    CHECK_STATUS(GP_EIO, engine->facts(&profile, j.name, &(cluster_facts){ 0 }, NULL));
    CHECK_INT(0, listing.count);

    use("h1", "no-such-gradpool");
    CHECK_STATUS(GP_EVERSION, job_launch(&j));
    CHECK_CONTAINS(err.message, "install gradpool on h1");
    use("h1", "/bin/true");
    CHECK_STATUS(GP_EVERSION, job_launch(&j));
    CHECK_CONTAINS(err.message, "'/bin/true ssh-host' gave no reply; install the same version of gradpool");
    put("newer", "#!/bin/sh\necho welcome\necho gradpool-ssh-host 7 9 gradpool 9.1\n");
    use("h1", scratch_path("newer"));
    CHECK_STATUS(GP_EVERSION, job_launch(&j));
    CHECK_CONTAINS(err.message, "h1: the host has gradpool 9.1 (protocol 7 to 9)");
    put("cut", "#!/bin/sh\necho gradpool-ssh-host 1 1 gradpool 0\nprintf '{\"status\": 0, \"bytes\"'\n");
    use("h1", scratch_path("cut"));
    CHECK_STATUS(GP_EPEER, job_launch(&j));
    CHECK(access(j.folder, F_OK) != 0);

    use("h1", scratch_path("gradpool's"));
    CHECK_INT(0, shell("mv work away"));
    CHECK_STATUS(GP_ENOENT, job_launch(&j));
    CHECK_CONTAINS(err.message, "h1: there is no directory");
    CHECK_CONTAINS(err.message, "set 'directory' in the profile");
    CHECK_INT(0, shell("mv away work"));
    gp_buffer_deinit(&j.text);
}

/* The key and the program are checked before a job; the profile works with the right ones. */
TEST(validate_names_the_stage_and_a_fix_that_works)
{
    char path[512];

    HOSTS("h1");
    snprintf(path, sizeof(path), "%s/config", scratch_dir);
    setenv("XDG_CONFIG_HOME", path, 1);
    snprintf(path, sizeof(path), "%s/bin/gradpool", getenv("GP_BUILD_DIR"));
    setenv("G", path, 1);
    CHECK_INT(
        0,
        shell("$G cluster new lab --type ssh --hosts h1 --folder \"$PWD/the jobs\" --cores 1 --gradpool $G "
              "> profile && cp config/gradpool/lab.conf good && mv ssh/authorized_keys key"));
    CHECK_INT(1, shell("$G cluster validate lab > checked"));
    CHECK_INT(
        0,
        shell("mv key ssh/authorized_keys; grep -q '^engine *FAILED .*permission denied' checked && "
              "grep -q \"fix: check 'user' in profile 'lab', and that 'ssh h1 true' works\" checked || { cat "
              "checked; false; }"));
    CHECK_INT(1,
              shell("sed 's|^gradpool .*|gradpool = no-such-gradpool|' good > config/gradpool/lab.conf; $G "
                    "cluster validate lab > checked"));
    CHECK_INT(
        0,
        shell("cp good config/gradpool/lab.conf; grep -q \"^build *FAILED .*no program 'no-such-gradpool'\" "
              "checked && grep -q 'fix: install gradpool on h1' checked || { cat checked; false; }"));
    CHECK_INT(0,
              shell("$G cluster validate lab > checked && grep -q '^end *PASSED' checked || { cat checked; "
                    "false; }"));
    CHECK_INT(0, shell("$G jobs --profile lab | grep -q 'no running or queued jobs'"));
    /* a report of files that are on the host */
    CHECK_INT(
        0,
        shell("$G submit --quiet --profile lab --directory \"$PWD/work\" --no-checkpoint -- train --network "
              "lenet --data digits:200 --epochs 1 > id && $G wait $(cat id) > waited"));
    CHECK_INT(0, shell("mkdir copies; TMPDIR=$PWD/copies $G report $(cat id) > report && grep -q '^command: "
                       ".*digits:200' report && grep -q '^last steps' report && grep -q '^folder: .*/the "
                       "jobs/gp-' report && rmdir copies || { cat waited report; false; }"));
    /* Of a long file, `jobs` and `report` transfer the ends only, by one connection each. */
    CHECK_INT(0, shell("cd \"$(dirname \"$(grep -l digits:200 'the jobs'/*/command.json)\")\" && seq 80000 | "
                       "sed 's/.*/{\"step\": &, \"note\": \"a line of 64 bytes ....................\"}/' > "
                       "metrics.jsonl && [ $(stat -c %%s metrics.jsonl) -gt 4000000 ]"));
    CHECK_INT(
        0,
        shell("$G jobs --profile lab --all --json > listed && grep -q '\"step\": 80000[,}]' listed || { cat "
              "listed; false; }"));
    /* `jobs` asks each host twice: for the listing, and for the steps of all jobs. */
    CHECK_INT(
        0,
        shell("for i in 1 2 3; do $G submit --quiet --profile lab --directory \"$PWD/work\" --no-checkpoint "
              "-- train --network lenet --data digits:200 --epochs $i > next && $G wait $(cat next) > waited "
              "|| exit; done; $G jobs --profile lab > /dev/null; before=$(grep -c ' ssh-host$' seen); $G "
              "jobs --profile lab --all --json > "
              "listed && calls=$(($(grep -c ' ssh-host$' seen) - before)) && [ $calls -eq 2 ] && for step in "
              "80000 2 4 6; do grep -q \"\\\"step\\\": $step[,}]\" listed || exit; done || { echo $calls "
              "calls; cat listed; false; }"));
    CHECK_INT(0,
              shell("before=$(grep -c ssh-host seen); $G report $(cat id) --json > report && grep -q "
                    "'\"step\": 80000[,}]' report && calls=$(($(grep -c ssh-host seen) - before)) && "
                    "[ $calls -gt 0 ] && [ $calls -le 14 ] || { echo $calls calls; tail -n 3 report; false; "
                    "}"));
}
