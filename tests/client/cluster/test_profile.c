/* test_profile.c: profiles as text, as values and as files. */
#include "client/cluster/profile.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/gp_test.h"

static gp_profile profile;

static gp_status parse(const char *text, gp_error *err)
{
    return gp_profile_parse(&profile, text, strlen(text), "p.conf", err);
}

/* A text that is wrong, and a part of its message. */
typedef struct wrong {
    const char *text, *message;
} wrong;

#define SLURM "type = slurm\nfolder = /f\n"
#define SSH   "type = ssh\nfolder = /f\nhosts = a\n"
#define KUBE  "type = kubernetes\nimage = i\n"
#define OWN   "type = command\nfolder = /f\nlaunch = l {script}\nstatus = s\ncancel = c {id}\n"

TEST(a_profile_of_each_type_is_read)
{
    gp_error err;

    REQUIRE_OK(parse("connect = tcp://h:1\nserver-key-file = h.pub\nkey-file = me.key\n", &err), err);
    CHECK_INT(GP_PROFILE_POOL, profile.type);
    CHECK_TEXT("tcp://h:1", profile.connect);
    REQUIRE_OK(
        parse(
            "# jobs\r\n\r\n  type=slurm   # engine\r\nfolder = /shared/a b\ngpus=2\ncores = 8\nmemory = 64G\n"
            "time = 24h\naccount = phys\npartition = gpu,long\nslurm.option = --qos=high # first\n"
            "slurm.option = --constraint=a100|h100\ngradpool = /opt/bin/gradpool\ndirectory = /home/me",
            &err),
        err);
    CHECK_INT(GP_PROFILE_SLURM, profile.type);
    CHECK_TEXT("/shared/a b", profile.folder);
    CHECK_INT(2, profile.gpus);
    CHECK_INT(8, profile.cores);
    CHECK_TEXT("--qos=high\n--constraint=a100|h100", profile.slurm_options);
    CHECK_TEXT("/home/me", profile.directory);
    REQUIRE_OK(parse("hosts = a,b.example.org,::1\nuser = me\nfolder = /f\ntype = ssh\n", &err), err);
    CHECK_TEXT("gradpool", profile.gradpool);
    REQUIRE_OK(parse("type = kubernetes\nimage = reg.io/a/b:1\ncontext = arn:aws:eks:eu:1:cluster/x\n"
                     "namespace = ml\nkubernetes.volume = models:/models\nqueue = gpus\n"
                     "labels = team=a,example.org/cost-center=42\n",
                     &err),
               err);
    CHECK_TEXT("models:/models", profile.volume);
    REQUIRE_OK(parse("type = command\nfolder = /f\nlaunch = qsub -N {name} -l 'ncpus={cores}' {script}\n"
                     "status = \"my status\"\ncancel = qdel {id}\n",
                     &err),
               err);
}

TEST(wrong_lines_are_refused_with_their_number_and_cause)
{
    static const wrong cases[] = {
        { "type slurm\n", "line 1 of p.conf: 'type slurm' is not of the form: key = value" },
        { "\n= 5\n", "line 2 of p.conf: unknown setting ''" },
        { "type = slrum\n", "did you mean 'slurm'? (one of pool, slurm, ssh, kubernetes, command)" },
        { SLURM "foldr = /f\n", "line 3 of p.conf: unknown setting 'foldr'; did you mean 'folder'?" },
        { SLURM "slurm.optoin = --a\n", "did you mean 'slurm.option'?" },
        { SLURM "walltime = 3h\n", "unknown setting 'walltime'; `gradpool cluster new --help` lists" },
        { SLURM "account =\n", "line 3 of p.conf: 'account' has no value; write one or remove the line" },
        { SLURM "account = # none\n", "'account' has no value" },
        { SLURM "gpus = 1\ngpus = 1\n",
          "line 4 of p.conf: 'gpus' is set a second time; line 3 has the first" },
        { SLURM "gpus = two\n", "line 3 of p.conf: gpus is 'two'; must be a whole number" },
        { SLURM "gpus = 65\n", "gpus is 65; must be between 0 and 64" },
        { SLURM "gpus = -1\n", "gpus is -1; must be between 0 and 64" },
        { SLURM "cores = 4097\n", "cores is 4097; must be between 0 and 4096" },
        { SLURM "cores = 1.5\n", "cores is '1.5'; must be a whole number" },
        { SLURM "memory = 64\n", "line 3 of p.conf: memory = 64: the memory '64' must be 1M to 1024T" },
        { SLURM "memory = 64GB\n", "the memory '64GB' must be" },
        { SLURM "memory = 10000000000000000G\n", "memory has 18 bytes, at most 15 are allowed" },
        { SLURM "time = 90\n", "the time '90' must be 1s to 366d, as a number with s, m, h or d" },
        { SLURM "time = 367d\n", "the time '367d' must be" },
        { SLURM "time = 1-24:00:00\n", "the time '1-24:00:00' must be" },
        { SLURM "gradpool = bin/gradpool\n", "it must be a program name or an absolute path" },
        { SLURM "directory = run1\n", "directory = run1: the path must be absolute: begin with '/'" },
        { "type = slurm\nfolder = jobs\n", "line 2 of p.conf: folder = jobs: the path must be absolute" },
        { "type = slurm\ngpus = 1\n", "p.conf: the setting 'folder' is missing (absolute path" },
        { SLURM "account = -x\n", "use letters, digits and . _ - + @ only" },
        { SLURM "partition = a b\n", "use letters, digits and . _ - + @ only" },
        { SLURM "slurm.option = -p gpu\n", "write the option in its long form: --NAME or --NAME=VALUE" },
        { SLURM "slurm.option = --qos high\n", "separate the option and its value by '='" },
        { SLURM "slurm.option = --export=ALL\n",
          "line 3 of p.conf: slurm.option = --export=ALL: gradpool sets --export" },
        { SLURM "slurm.option = --expo=ALL\n", "gradpool sets --export itself; remove the line" },
        { SLURM "slurm.option = --time=1:00\n",
          "--time has a setting of its own; write 'time = VALUE' instead" },
        { SLURM "slurm.option = --requeue\n", "gradpool sets --requeue itself" },
        { SLURM "slurm.option = --cluster=other\n", "lists and cancels jobs on the cluster of SLURM_CONF" },
        { SLURM "hosts = a\n",
          "line 3 of p.conf: 'hosts' is a setting of type ssh; this profile has the type slurm" },
        { SSH "partition = a\n", "'partition' is a setting of type slurm; this profile has the type ssh" },
        { "connect = tcp://h:1\ngpus = 0\n",
          "'gpus' is a setting of type slurm, ssh, kubernetes, command; this profile has the type pool" },
        { "folder = /f\n", "the setting 'connect' is missing" },
        { "key-file = a\n",
          "p.conf: the setting 'connect' is missing (address of the pool); type pool needs it" },
        { "type = ssh\nfolder = /f\n", "the setting 'hosts' is missing" },
        { "type = ssh\nfolder = /f\nhosts = a, b\n", "invalid host name at ' b'" },
        { "type = ssh\nfolder = /f\nhosts = me@a\n", "invalid host name at 'me@a'" },
        { "type = ssh\nfolder = /f\nhosts = a,-oProxyCommand=x\n",
          "invalid host name at '-oProxyCommand=x'" },
        { SSH "user = a b\n", "use letters, digits and . _ - only" },
        { "type = kubernetes\n", "the setting 'image' is missing (container image that contains gradpool)" },
        { "type = kubernetes\nimage = -i\n", "it must not begin with '-' or contain blanks" },
        { KUBE "context = a b\n", "it must not begin with '-' or contain blanks" },
        { KUBE "namespace = Prod\n",
          "use 1 to 63 lower-case letters, digits and '-', which stands inside only" },
        { KUBE "queue = a-\n", "use 1 to 63 lower-case letters" },
        { KUBE "volume = models\n", "write CLAIM:/PATH, such as models:/models" },
        { KUBE "volume = a..b:/m\n", "write CLAIM:/PATH" },
        { KUBE "labels = a=b,c\n", "invalid label at 'c'; write KEY=VALUE,KEY=VALUE" },
        { KUBE "labels = a=b,/c=d\n", "invalid label at '/c=d'" },
        { KUBE "labels = a=b=c\n", "invalid label at 'a=b=c'" },
        { "type = command\nfolder = /f\nlaunch = l\nstatus = s\ncancel = c {id}\n",
          "line 3 of p.conf: launch = l: the command must contain {script}" },
        { "type = command\nfolder = /f\nlaunch = l {script} {nam}\nstatus = s\ncancel = c {id}\n",
          "unknown placeholder {nam}; did you mean {name}?" },
        { "type = command\nfolder = /f\nlaunch = l {script} {id}\nstatus = s\ncancel = c {id}\n",
          "unknown placeholder {id} in this command" },
        { "type = command\nfolder = /f\nlaunch = l {script}\nstatus = s\ncancel = c\n",
          "the command must contain {id}" },
        { "type = command\nfolder = /f\nlaunch = l {script}\nstatus = 's\ncancel = c {id}\n",
          "line 4 of p.conf: status = 's: the quote ' is not closed" },
        { "type = command\nfolder = /f\nlaunch = {script}\nstatus = s\ncancel = c {id}\n",
          "the first word must be a program, without placeholders" },
        { "type = command\nfolder = /f\nlaunch = l {script} ${HOME\nstatus = s\ncancel = c {id}\n",
          "'{HOME' is not a placeholder; write {name}" },
        { SLURM "account = a\033[31m\n", "the account contains a control character" },
        { SLURM "gpus = \x9b\n", "the gpus contains a control character or invalid UTF-8" },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gp_error err = { GP_OK, "" };

        if (parse(cases[i].text, &err) == GP_OK)
            GP_TEST_FAIL("accepted: %s", cases[i].text);
        CHECK_CONTAINS(err.message, cases[i].message);
    }
}

TEST(a_text_that_is_not_a_profile_is_refused)
{
    static char large[GP_PROFILE_BYTES_MAX + 1];
    gp_error err;

    memset(large, '\n', sizeof(large));
    CHECK_STATUS(GP_ELIMIT, gp_profile_parse(&profile, large, sizeof(large), "p.conf", &err));
    CHECK_CONTAINS(err.message, "p.conf has more than 16384 bytes");
    CHECK_STATUS(GP_EINVAL, gp_profile_parse(&profile, SLURM "\0", sizeof(SLURM), "p.conf", &err));
    CHECK_CONTAINS(err.message, "p.conf has a NUL byte");
}

/* Fill a text with `count` copies of a line after a valid beginning. */
static const char *repeated(const char *begin, const char *line, unsigned count)
{
    static char text[GP_PROFILE_BYTES_MAX];
    size_t at = (size_t)snprintf(text, sizeof(text), "%s", begin);

    while (count-- > 0)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s", line);
    return text;
}

TEST(lists_have_an_upper_bound)
{
    gp_error err;

    CHECK_STATUS(GP_OK, parse(repeated(SLURM, "slurm.option = --qos=a\n", GP_PROFILE_LINES_MAX), &err));
    CHECK_STATUS(GP_ELIMIT,
                 parse(repeated(SLURM, "slurm.option = --qos=a\n", GP_PROFILE_LINES_MAX + 1), &err));
    CHECK_CONTAINS(err.message, "'slurm.option' has more than 32 lines");
    CHECK_STATUS(GP_OK, parse(repeated("type = ssh\nfolder = /f\nhosts = a", ",a", 63), &err));
    CHECK_STATUS(GP_ELIMIT, parse(repeated("type = ssh\nfolder = /f\nhosts = a", ",a", 64), &err));
    CHECK_CONTAINS(err.message, "more than 64 hosts");
    CHECK_STATUS(GP_OK, parse(repeated(KUBE "labels = a=b", ",a=b", 15), &err));
    CHECK_STATUS(GP_ELIMIT, parse(repeated(KUBE "labels = a=b", ",a=b", 16), &err));
    CHECK_CONTAINS(err.message, "more than 16 labels");
    CHECK_STATUS(GP_ELIMIT, parse(repeated("type = slurm\nfolder = /", "f", 479), &err));
    CHECK_CONTAINS(err.message, "folder has 480 bytes, at most 479 are allowed");
}

TEST(a_value_that_a_file_cannot_hold_is_refused)
{
    gp_error err;

    REQUIRE_OK(parse(SLURM, &err), err);
    strcpy(profile.directory, "/a\nb");
    CHECK_STATUS(GP_EINVAL, gp_profile_check(&profile, &err));
    CHECK_CONTAINS(err.message, "the directory contains a control character");
    strcpy(profile.directory, "/a #b");
    CHECK_STATUS(GP_EINVAL, gp_profile_check(&profile, &err));
    CHECK_CONTAINS(err.message, "directory = /a #b: it must not begin or end with a blank, or contain ' #'");
}

TEST(the_written_text_is_read_as_the_same_profile)
{
    static gp_profile again;
    gp_buffer text;
    gp_error err;

    gp_buffer_init(&text, GP_PROFILE_BYTES_MAX);
    REQUIRE_OK(parse(SLURM "gpus = 2\nslurm.option = --a1\nslurm.option = --b2=c d\n", &err), err);
    REQUIRE_OK(gp_profile_format(&profile, &text, &err), err);
    CHECK_TEXT("type         = slurm\nfolder       = /f\ngpus         = 2\nslurm.option = --a1\n"
               "slurm.option = --b2=c d\n",
               gp_buffer_text(&text));
    REQUIRE_OK(gp_profile_parse(&again, gp_buffer_text(&text), text.bytes, "again", &err), err);
    CHECK(memcmp(&again, &profile, sizeof(again)) == 0);
    gp_buffer_deinit(&text);
}

TEST(times_and_memory_are_converted)
{
    static const struct {
        const char *text;
        int64_t seconds;
    } times[] = {
        { "1s", 1 },          { "90m", 5400 },         { "24h", 86400 },        { "366d", 31622400 },
        { "01:30:00", 5400 }, { "100:00:00", 360000 }, { "2-03:00:01", 183601 }
    };
    static const char *const bad[] = { "",
                                       "0s",
                                       "5",
                                       "h",
                                       "-5m",
                                       "1.5h",
                                       "5m ",
                                       "1:2",
                                       "1:60:00",
                                       "1:00:60",
                                       "1-",
                                       "1-2:3",
                                       "99999999999999999999s",
                                       "1:1:1:1",
                                       "00:00:00",
                                       "-1:00:00",
                                       "1--2:00:00",
                                       "8785:00:00" };
    int64_t value;
    gp_error err;

    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        REQUIRE_OK(gp_profile_time_s(times[i].text, &value, &err), err);
        CHECK_INT(times[i].seconds, value);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (gp_profile_time_s(bad[i], &value, &err) != GP_EINVAL)
            GP_TEST_FAIL("accepted: '%s'", bad[i]);
    REQUIRE_OK(gp_profile_memory_mib("512M", &value, &err), err);
    CHECK_INT(512, value);
    REQUIRE_OK(gp_profile_memory_mib("1024T", &value, &err), err);
    CHECK_INT(1024 * 1024 * 1024, value);
    CHECK_STATUS(GP_EINVAL, gp_profile_memory_mib("1025T", &value, &err));
    CHECK_STATUS(GP_EINVAL, gp_profile_memory_mib("0G", &value, &err));
    CHECK_STATUS(GP_EINVAL, gp_profile_memory_mib("64g", &value, &err));
}

TEST(command_lines_are_split_without_a_shell)
{
    static char many[2 * GP_PROFILE_WORDS_MAX + 3];
    gp_profile_words words;
    gp_error err;

    REQUIRE_OK(gp_profile_words_split(&words, " qsub -l 'n=1 m=2' \"it's\"x '' $HOME;a", &err), err);
    CHECK_INT(6, words.count);
    CHECK_TEXT("qsub", words.word[0]);
    CHECK_TEXT("n=1 m=2", words.word[2]);
    CHECK_TEXT("it'sx", words.word[3]);
    CHECK_TEXT("", words.word[4]);
    CHECK_TEXT("$HOME;a", words.word[5]);
    CHECK(words.word[6] == NULL);
    CHECK_STATUS(GP_EINVAL, gp_profile_words_split(&words, "  ", &err));
    CHECK_STATUS(GP_EINVAL, gp_profile_words_split(&words, "'' a", &err));
    CHECK_STATUS(GP_EINVAL, gp_profile_words_split(&words, "a \"b", &err));
    for (int i = 0; i <= GP_PROFILE_WORDS_MAX; i++)
        memcpy(many + 2 * i, "a ", 2);
    CHECK_STATUS(GP_ELIMIT, gp_profile_words_split(&words, many, &err));
    many[2 * GP_PROFILE_WORDS_MAX] = '\0';
    REQUIRE_OK(gp_profile_words_split(&words, many, &err), err);
}

/* ---- files ---- */

static char folder[64], file[160];

/* Use a new, empty configuration directory. */
static void files_begin(void)
{
    snprintf(folder, sizeof(folder), "/tmp/gp-profile-XXXXXX");
    if (mkdtemp(folder) == NULL || setenv("XDG_CONFIG_HOME", folder, 1) != 0)
        GP_TEST_FAIL("cannot create %s", folder);
}

static const char *in_folder(const char *name)
{
    snprintf(file, sizeof(file), "%s/gradpool/%s", folder, name);
    return file;
}

static void files_end(void)
{
    static gp_profile_names names;

    if (gp_profile_list(&names, NULL) == GP_OK)
        for (uint32_t i = 0; i < names.count; i++)
            gp_profile_remove(names.name[i], NULL);
    unlink(in_folder("default"));
    unlink(in_folder("-x.conf"));
    rmdir(in_folder(""));
    if (rmdir(folder) != 0)
        GP_TEST_FAIL("files remain in %s", folder);
}

/* Write a file with the given mode. */
static void file_put(const char *name, const char *text, mode_t mode)
{
    FILE *out = fopen(in_folder(name), "w");

    if (out == NULL || fputs(text, out) < 0 || fclose(out) != 0 || chmod(file, mode) != 0)
        GP_TEST_FAIL("cannot write %s", file);
}

/* Write the profile to the file of that name. */
static gp_status put(const char *name, bool replace, gp_error *err)
{
    snprintf(profile.name, sizeof(profile.name), "%s", name);
    return gp_profile_write(&profile, replace, err);
}

TEST(a_written_profile_is_private_and_is_not_overwritten)
{
    static gp_profile again;
    struct stat info;
    gp_error err;

    files_begin();
    CHECK_STATUS(GP_OK, parse(SLURM, &err));
    CHECK_STATUS(GP_OK, put("hpc", false, &err));
    CHECK(stat(in_folder("hpc.conf"), &info) == 0 && (info.st_mode & 0777) == 0600);
    CHECK_STATUS(GP_OK, gp_profile_read(&again, "hpc", &err));
    CHECK(memcmp(&again, &profile, sizeof(again)) == 0);
    CHECK_STATUS(GP_EBUSY, put("hpc", false, &err));
    CHECK_CONTAINS(err.message, "the profile 'hpc' exists already (");
    CHECK_CONTAINS(err.message, "replace it with --force");
    profile.gpus = 3;
    CHECK_STATUS(GP_OK, put("hpc", true, &err));
    CHECK_STATUS(GP_OK, gp_profile_read(&again, "hpc", &err));
    CHECK_INT(3, again.gpus);
    CHECK_STATUS(GP_OK, gp_profile_remove("hpc", &err));
    CHECK_STATUS(GP_ENOENT, gp_profile_remove("hpc", &err));
    files_end();
}

TEST(a_profile_that_others_can_write_is_refused)
{
    gp_error err;

    files_begin();
    CHECK_STATUS(GP_OK, parse(SLURM, &err));
    CHECK_STATUS(GP_OK, put("hpc", false, &err));
    CHECK(chmod(in_folder("hpc.conf"), 0620) == 0);
    CHECK_STATUS(GP_EPERM, gp_profile_read(&profile, "hpc", &err));
    CHECK_CONTAINS(err.message, "is writable by other users; run: chmod 600 '");
    files_end();
}

TEST(names_have_a_form_and_a_missing_one_suggests_the_nearest)
{
    static const char *const bad[] = { "", "../x", "-x", ".x", "a/b", "a:b", "a b", "default", "none" };
    char name[GP_PROFILE_NAME_MAX + 2];
    gp_error err;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (gp_profile_name_check(bad[i], &err) != GP_EINVAL)
            GP_TEST_FAIL("accepted: '%s'", bad[i]);
    memset(name, 'a', sizeof(name));
    name[GP_PROFILE_NAME_MAX + 1] = '\0';
    CHECK_STATUS(GP_EINVAL, gp_profile_name_check(name, &err));
    name[GP_PROFILE_NAME_MAX] = '\0';
    CHECK_STATUS(GP_OK, gp_profile_name_check(name, &err));
    files_begin();
    CHECK_STATUS(GP_OK, parse(SLURM, &err));
    CHECK_STATUS(GP_OK, put("cluster-one", false, &err));
    CHECK_STATUS(GP_ENOENT, gp_profile_read(&profile, "cluster-oen", &err));
    CHECK_CONTAINS(err.message, "there is no profile 'cluster-oen'; did you mean 'cluster-one'?");
    CHECK_STATUS(GP_ENOENT, gp_profile_read(&profile, "zzz", &err));
    CHECK_CONTAINS(err.message, "`gradpool cluster list` lists the profiles");
    CHECK_STATUS(GP_ENOENT, gp_profile_read(&profile, "../hpc", &err));
    files_end();
}

TEST(the_list_is_sorted_and_has_profiles_only)
{
    static gp_profile_names names;
    gp_error err;

    files_begin();
    CHECK_STATUS(GP_OK, gp_profile_list(&names, &err));
    CHECK_INT(0, names.count);
    CHECK_STATUS(GP_OK, parse(SLURM, &err));
    CHECK_STATUS(GP_OK, put("b", false, &err));
    CHECK_STATUS(GP_OK, put("a.b", false, &err));
    CHECK_STATUS(GP_OK, gp_profile_default_set("b", &err));
    file_put("-x.conf", "", 0600);
    CHECK_STATUS(GP_OK, gp_profile_list(&names, &err));
    CHECK_INT(2, names.count);
    CHECK_TEXT("a.b", names.name[0]);
    CHECK_TEXT("b", names.name[1]);
    files_end();
}

TEST(the_default_profile_is_a_cluster_and_ends_with_its_file)
{
    char name[GP_PROFILE_NAME_MAX + 1];
    gp_error err;

    files_begin();
    CHECK_STATUS(GP_ENOENT, gp_profile_read_cluster(&profile, "default", &err));
    CHECK_CONTAINS(err.message, "there is no default profile; set one with: gradpool cluster default NAME");
    CHECK_STATUS(GP_OK, parse("connect = tcp://h:1\n", &err));
    CHECK_STATUS(GP_OK, put("box", false, &err));
    CHECK_STATUS(GP_EINVAL, gp_profile_default_set("box", &err));
    CHECK_CONTAINS(err.message, "the profile 'box' describes a pool; use --pool box");
    CHECK_STATUS(GP_ENOENT, gp_profile_default_set("hpc", &err));
    CHECK_STATUS(GP_OK, parse(SLURM, &err));
    CHECK_STATUS(GP_OK, put("hpc", false, &err));
    CHECK_STATUS(GP_OK, gp_profile_default_set("hpc", &err));
    CHECK_STATUS(GP_OK, gp_profile_read_cluster(&profile, "default", &err));
    CHECK_TEXT("hpc", profile.name);
    CHECK_STATUS(GP_OK, gp_profile_default_set(NULL, &err));
    CHECK_STATUS(GP_OK, gp_profile_default(name, &err));
    CHECK_TEXT("", name);
    CHECK_STATUS(GP_OK, gp_profile_default_set("hpc", &err));
    CHECK_STATUS(GP_OK, gp_profile_remove("hpc", &err));
    CHECK_STATUS(GP_OK, gp_profile_default(name, &err));
    CHECK_TEXT("", name);
    file_put("default", "../x\n", 0600);
    CHECK_STATUS(GP_EINVAL, gp_profile_default(name, &err));
    CHECK_CONTAINS(err.message, "does not contain the name of a profile; remove the file");
    files_end();
}

/* ---- documentation ---- */

/* Write the row of a setting in the table of docs/clusters.md. */
static void documented_row(const gp_profile_setting *setting, char *row, size_t bytes)
{
    const gp_param *param = &setting->param;
    const uint32_t sets[] = { setting->types, setting->required_by };
    const uint32_t any = (1u << GP_PROFILE_TYPES) - 1;
    size_t at = (size_t)snprintf(row, bytes, "| `%s` |", param->name);

    for (int i = 0; i < 2; i++) {
        const char *separator = " ";

        at += (size_t)snprintf(row + at, bytes - at, "%s", sets[i] == any ? " all" : "");
        for (int type = 0; type < GP_PROFILE_TYPES && sets[i] != any; type++)
            if ((sets[i] & 1u << type) != 0) {
                at += (size_t)snprintf(row + at, bytes - at, "%s%s", separator, gp_profile_types[type]);
                separator = ", ";
            }
        at += (size_t)snprintf(row + at, bytes - at, " |");
    }
    at += (size_t)snprintf(row + at, bytes - at, " %s", param->help);
    if (param->type == GP_PARAM_I64)
        at += (size_t)snprintf(row + at, bytes - at, " (%.0f to %.0f)", param->min, param->max);
    snprintf(row + at, bytes - at, " |\n");
}

TEST(the_documentation_has_a_row_for_each_setting)
{
    static char page[1 << 17];
    const char *source = getenv("GP_SOURCE_DIR");
    char path[300], row[400];
    const char *at;

    snprintf(path, sizeof(path), "%s/docs/clusters.md", source == NULL ? "." : source);
    FILE *in = fopen(path, "r");

    REQUIRE(in != NULL);
    page[fread(page, 1, sizeof(page) - 1, in)] = '\0';
    fclose(in);
    at = strstr(page, "| setting | types | required by | meaning |\n|---|---|---|---|\n");
    REQUIRE(at != NULL);
    at = strchr(strchr(at, '\n') + 1, '\n') + 1;
    for (const gp_profile_setting *setting = gp_profile_settings; setting->param.type != GP_PARAM_NONE;
         setting++) {
        documented_row(setting, row, sizeof(row));
        if (strncmp(at, row, strlen(row)) != 0)
            GP_TEST_FAIL("docs/clusters.md: expected the row %s", row);
        at += strcspn(at, "\n") + 1;
    }
    CHECK(at[0] == '\n'); /* the end of the table */
}
