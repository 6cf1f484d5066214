/* Paths of a pool under different environment variables, and checks of the directories. */
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "proto/local/paths.h"
#include "tests/gp_test.h"
#include "tests/proto/scratch.h"

/* Set the environment of one test: all paths lie under the scratch directory. */
static void environment_set(void)
{
    setenv("GRADPOOL_RUNTIME_DIR", scratch_path("run"), 1);
    setenv("GRADPOOL_STATE_DIR", scratch_path("state"), 1);
    setenv("HOME", scratch_path("home"), 1);
    unsetenv("XDG_STATE_HOME");
}

TEST(invalid_pool_names_are_refused)
{
    /* "devices" would share its directory with the device claims, and remove them when it ends */
    static const char *const bad[] = { "",         ".",       "..",
                                       "a/b",      "../x",    "a b",
                                       "\xc3\xa9", "devices", "123456789012345678901234567890123" };
    gp_paths paths;
    gp_error err;

    environment_set();
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        CHECK_STATUS(GP_EINVAL, gp_paths_find(&paths, bad[i], &err));
        CHECK_CONTAINS(err.message, "invalid pool name");
    }
    CHECK_STATUS(GP_OK, gp_paths_find(&paths, "12345678901234567890123456789.-_", &err));
    CHECK_STATUS(GP_OK, gp_paths_find(&paths, NULL, &err));
    CHECK_TEXT("default", paths.pool);
}

TEST(paths_follow_the_environment_variables)
{
    gp_paths paths;
    gp_error err;
    char host[65] = "", expected[400], path[GP_TEXT_PATH];

    environment_set();
    REQUIRE_OK(gp_paths_find(&paths, "p", &err), err);
    CHECK_TEXT(scratch_path("run"), paths.runtime);
    CHECK_TEXT(scratch_path("run/p"), paths.pool_dir);
    CHECK_TEXT(scratch_path("run/p/lock"), paths.lock);
    CHECK_TEXT(scratch_path("run/p/scheduler"), paths.scheduler_socket);
    CHECK_TEXT(scratch_path("run/p/scheduler.door"), paths.scheduler_control_socket);
    gethostname(host, sizeof(host) - 1);
    snprintf(expected, sizeof(expected), "%s/state/%s/p/log", scratch_dir, host);
    CHECK_TEXT(expected, paths.log_dir);
    snprintf(expected, sizeof(expected), "/tmp/gradpool-%u/devices", (unsigned)geteuid());
    CHECK_TEXT(expected, paths.device_dir);
    gp_paths_worker_file(&paths, 3, 2, "", path);
    CHECK_TEXT(scratch_path("run/p/w3.2"), path);
    gp_paths_worker_file(&paths, 3, 2, ".door", path);
    CHECK_TEXT(scratch_path("run/p/w3.2.door"), path);
    gp_paths_worker_log(&paths, 3, path);
    CHECK_CONTAINS(path, "/p/log/worker-3.log");

    setenv("GRADPOOL_RUNTIME_DIR", scratch_path("run///"), 1);
    REQUIRE_OK(gp_paths_find(&paths, "p", &err), err);
    CHECK_TEXT(scratch_path("run/p"), paths.pool_dir);
    unsetenv("GRADPOOL_STATE_DIR");
    REQUIRE_OK(gp_paths_find(&paths, "p", &err), err);
    CHECK_TEXT(scratch_path("home/.local/state/gradpool"), paths.state_root);
    setenv("XDG_STATE_HOME", scratch_path("xdg"), 1);
    REQUIRE_OK(gp_paths_find(&paths, "p", &err), err);
    CHECK_TEXT(scratch_path("xdg/gradpool"), paths.state_root);
}

TEST(runtime_defaults_to_run_user_or_tmp)
{
    gp_paths paths;
    gp_error err;
    char run_user[64], tmp[64];

    environment_set();
    unsetenv("GRADPOOL_RUNTIME_DIR");

    /* ignored: it can differ between shells of one user */
    setenv("XDG_RUNTIME_DIR", scratch_dir, 1);
    snprintf(run_user, sizeof(run_user), "/run/user/%u/gradpool", (unsigned)geteuid());
    snprintf(tmp, sizeof(tmp), "/tmp/gradpool-%u", (unsigned)geteuid());
    REQUIRE_OK(gp_paths_find(&paths, "p", &err), err);
    CHECK(strcmp(paths.runtime, run_user) == 0 || strcmp(paths.runtime, tmp) == 0);
    unsetenv("GRADPOOL_STATE_DIR");
    unsetenv("HOME");
    CHECK_STATUS(GP_EINVAL, gp_paths_find(&paths, "p", &err));
    CHECK_CONTAINS(err.message, "GRADPOOL_STATE_DIR");
}

TEST(errors_name_relative_and_overlong_paths_and_the_fix)
{
    char longer[200];
    gp_paths paths;
    gp_error err;

    environment_set();
    setenv("GRADPOOL_RUNTIME_DIR", "run", 1);
    CHECK_STATUS(GP_EINVAL, gp_paths_find(&paths, "p", &err));
    CHECK_CONTAINS(err.message, "GRADPOOL_RUNTIME_DIR is 'run'");
    memset(longer, 'x', sizeof(longer));
    longer[0] = '/';
    longer[78] = '\0'; /* 78 + "/p" + "/w256.4294967295.door" = 101 */
    setenv("GRADPOOL_RUNTIME_DIR", longer, 1);
    CHECK_STATUS(GP_ELIMIT, gp_paths_find(&paths, "p", &err));
    CHECK_CONTAINS(err.message, longer);
    CHECK_CONTAINS(err.message, "set GRADPOOL_RUNTIME_DIR");
    longer[77] = '\0';
    setenv("GRADPOOL_RUNTIME_DIR", longer, 1);
    REQUIRE_OK(gp_paths_find(&paths, "p", &err), err);
    char path[GP_TEXT_ENDPOINT];
    gp_paths_worker_file(&paths, 256, UINT32_MAX, ".door", path);
    CHECK_INT(100, strlen(path));
    environment_set();
    longer[77] = longer[78] = 'x';
    longer[150] = '\0';
    setenv("GRADPOOL_STATE_DIR", longer, 1);
    CHECK_STATUS(GP_ELIMIT, gp_paths_find(&paths, "p", &err));
    CHECK_CONTAINS(err.message, "set GRADPOOL_STATE_DIR");
}

static int mode_of(const char *path)
{
    struct stat seen;

    return lstat(path, &seen) != 0 ? -1 : (int)(seen.st_mode & 07777);
}

/* Run a check in a child process as user 59137, while root owns /tmp/gradpool-59137. Requires
 * root. */
static void squatted(void (*check)(const char *tmp))
{
    enum { VICTIM = 59137 };
    char tmp[64];

    if (geteuid() != 0)
        SKIP("needs root to create a directory for another user");
    snprintf(tmp, sizeof(tmp), "/tmp/gradpool-%d", VICTIM);
    REQUIRE(mkdir(tmp, 0700) == 0);
    fflush(stdout);
    pid_t child = fork();
    int state = -1;

    if (child == 0) {
        environment_set();
        unsetenv("GRADPOOL_RUNTIME_DIR");
        if (mkdir(scratch_path("home"), 0700) != 0 || chown(scratch_path("home"), VICTIM, VICTIM) != 0 ||
            chmod(scratch_dir, 0711) != 0 || setuid(VICTIM) != 0)
            _exit(99);
        setenv("GRADPOOL_STATE_DIR", scratch_path("home/s"), 1);
        check(tmp);
        fflush(stdout);
        _exit(gp_test_failures != 0);
    }
    waitpid(child, &state, 0);
    CHECK_INT(0, state);
    rmdir(tmp);
}

static void check_fallback(const char *tmp)
{
    gp_paths paths, again;
    gp_error err;
    char host[65] = "", expected[GP_TEXT_ENDPOINT];

    gethostname(host, sizeof(host) - 1);
    snprintf(expected, sizeof(expected), "%.80s/.run.%.20s", scratch_path("home/s"), host);
    REQUIRE_OK(gp_paths_find(&paths, "p", &err), err);
    CHECK_TEXT(expected, paths.runtime);
    CHECK_STATUS(GP_ENOPOOL, gp_paths_check(&paths, &err));
    REQUIRE_OK(gp_paths_create(&paths, &err), err);
    REQUIRE_OK(gp_paths_check(&paths, &err), err);
    CHECK_INT(0700, mode_of(paths.runtime));
    CHECK_INT(0700, mode_of(paths.device_dir));
    REQUIRE_OK(gp_paths_find(&again, "p", &err), err);
    CHECK(memcmp(&paths, &again, sizeof(paths)) == 0);

    char longer[GP_TEXT_PATH];

    snprintf(longer, sizeof(longer), "/%0*d", 100, 0);
    setenv("GRADPOOL_STATE_DIR", longer, 1);
    CHECK_STATUS(GP_ELIMIT, gp_paths_find(&again, "p", &err));
    CHECK_CONTAINS(err.message, tmp);
    CHECK_CONTAINS(err.message, "belongs to user 0");
    CHECK_CONTAINS(err.message, "set GRADPOOL_RUNTIME_DIR");
}

TEST(pool_starts_although_another_user_owns_the_tmp_directory)
{
    squatted(check_fallback);
}

TEST(pool_that_moved_out_of_tmp_stays_outside)
{
    gp_paths paths;
    gp_error err;
    char host[65] = "", fallback[GP_TEXT_PATH];

    environment_set();
    unsetenv("GRADPOOL_RUNTIME_DIR");
    setenv("GRADPOOL_STATE_DIR", scratch_path("left"), 1);
    gethostname(host, sizeof(host) - 1);
    snprintf(fallback, sizeof(fallback), "%.80s/.run.%.20s", scratch_path("left"), host);
    REQUIRE(mkdir(scratch_path("left"), 0700) == 0 && mkdir(fallback, 0700) == 0);
    REQUIRE_OK(gp_paths_find(&paths, "p", &err), err);
    CHECK_TEXT(fallback, paths.runtime);
}

TEST(directories_are_private_with_any_umask)
{
    gp_paths paths;
    gp_error err;

    environment_set();
    REQUIRE_OK(gp_paths_find(&paths, "made", &err), err);
    CHECK_STATUS(GP_ENOPOOL, gp_paths_check(&paths, &err));
    CHECK_CONTAINS(err.message, "gradpool up");
    mode_t mask = umask(0);

    REQUIRE_OK(gp_paths_create(&paths, &err), err);
    umask(mask);
    CHECK_INT(0700, mode_of(paths.runtime));
    CHECK_INT(0700, mode_of(paths.pool_dir));
    CHECK_INT(0700, mode_of(paths.state_dir));
    CHECK_INT(0700, mode_of(paths.log_dir));
    CHECK_INT(0700, mode_of(paths.device_dir));
    REQUIRE_OK(gp_paths_create(&paths, &err), err); /* second call: all directories exist */
    CHECK_STATUS(GP_OK, gp_paths_check(&paths, &err));
}

TEST(unsafe_directories_are_refused)
{
    gp_paths paths;
    gp_error err;
    const char *link = scratch_path("link");

    environment_set();
    REQUIRE_OK(gp_paths_find(&paths, "bad", &err), err);
    REQUIRE_OK(gp_paths_create(&paths, &err), err);
    chmod(paths.pool_dir, 0710);
    CHECK_STATUS(GP_EPERM, gp_paths_check(&paths, &err));
    CHECK_CONTAINS(err.message, "chmod 700");
    CHECK_STATUS(GP_EPERM, gp_paths_create(&paths, &err));
    chmod(paths.pool_dir, 0700);
    CHECK_INT(0, symlink(paths.runtime, link));
    setenv("GRADPOOL_RUNTIME_DIR", link, 1);
    REQUIRE_OK(gp_paths_find(&paths, "bad", &err), err);
    CHECK_STATUS(GP_EPERM, gp_paths_check(&paths, &err));
    CHECK_CONTAINS(err.message, "symbolic link");
    CHECK_STATUS(GP_EPERM, gp_paths_create(&paths, &err));
    CHECK_STATUS(GP_EPERM, gp_directory_secure("/dev/null", &err));
    CHECK_CONTAINS(err.message, "not a directory");
    CHECK_STATUS(GP_EIO, gp_directory_secure(scratch_path("no/parent"), &err));
}

/* Make a directory of another user. */
static const char *foreign_make(const char *name)
{
    const char *path = scratch_path(name);

    CHECK_INT(0, mkdir(path, 0700));
    CHECK_INT(0, chown(path, 65534, 65534));
    return path;
}

TEST(errors_name_the_variable_that_moves_the_directory)
{
    gp_paths paths;
    gp_error err;

    if (geteuid() != 0)
        SKIP("needs root to create directories of another user");
    environment_set();
    setenv("GRADPOOL_STATE_DIR", foreign_make("foreign-state"), 1);
    REQUIRE_OK(gp_paths_find(&paths, "p", &err), err);
    CHECK_STATUS(GP_EPERM, gp_paths_create(&paths, &err));
    CHECK_CONTAINS(err.message, "foreign-state belongs to user 65534");
    CHECK_CONTAINS(err.message, "set GRADPOOL_STATE_DIR to a directory of your own");
    environment_set();
    setenv("GRADPOOL_RUNTIME_DIR", foreign_make("foreign-run"), 1);
    REQUIRE_OK(gp_paths_find(&paths, "p", &err), err);
    CHECK_STATUS(GP_EPERM, gp_paths_create(&paths, &err));
    CHECK_CONTAINS(err.message, "set GRADPOOL_RUNTIME_DIR to a directory of your own");
}

/* Create the directories below a home on a read-only file system, in a mount namespace. Return the
 * exit code of the child; 98: no namespace. */
static int read_only_home_create(void)
{
    int state = -1;

    fflush(stdout);
    pid_t child = fork();

    if (child == 0) {
        gp_paths paths;
        gp_error err;

        environment_set();
        unsetenv("GRADPOOL_STATE_DIR");
        setenv("HOME", scratch_path("fixed"), 1);
        if (mkdir(scratch_path("fixed"), 0700) != 0 || unshare(CLONE_NEWNS) != 0 ||
            mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
            mount("none", scratch_path("fixed"), "tmpfs", MS_RDONLY, NULL) != 0)
            _exit(98);
        CHECK_STATUS(GP_OK, gp_paths_find(&paths, "p", &err));
        CHECK_STATUS(GP_EIO, gp_paths_create(&paths, &err));
        CHECK_CONTAINS(err.message, "fixed/.local: Read-only file system; set GRADPOOL_STATE_DIR");
        fflush(stdout);
        _exit(gp_test_failures != 0);
    }
    waitpid(child, &state, 0);
    return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

TEST(read_only_home_is_reported_as_such)
{
    int code = read_only_home_create();

    if (code == 98)
        SKIP("cannot create a mount namespace");
    CHECK_INT(0, code);
}
