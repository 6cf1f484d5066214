/* test_cluster_profiles.c: `gradpool cluster`, as run from a shell. */
#include <sys/stat.h>

#include "tests/service/commands.h"

TEARDOWN()
{
    unsetenv("XDG_CONFIG_HOME");
    pools_end();
}

static void cluster_begin(void)
{
    commands_begin();
    setenv("HOME", pools_root, 1);
    setenv("XDG_CONFIG_HOME", in_root("config"), 1);
}

/* Return the text of a member of the JSON object that the last command printed. The text is valid
 * until the next call. */
static const char *printed(const char *member)
{
    static char text[200];
    gp_json *json = pools_json(out);

    snprintf(text, sizeof(text), "%s", gp_json_text(gp_json_member(json, member), "(missing)"));
    gp_json_free(json);
    return text;
}

static const char *const hpc_text = "type         = slurm\n"
                                    "folder       = /shared/none\n"
                                    "gpus         = 2\n"
                                    "time         = 24h\n"
                                    "slurm.option = --qos=high\n"
                                    "slurm.option = --constraint=a100\n";

/* Create the profile "hpc" with the settings of hpc_text. */
static void hpc_new(void)
{
    RUN_CODE(0, "cluster", "new", "hpc", "--type", "slurm", "--folder", "/shared/none", "--gpus", "2",
             "--time", "24h", "--slurm.option", "--qos=high", "--slurm.option=--constraint=a100");
}

TEST(new_writes_a_private_file_and_prints_it)
{
    struct stat info;

    cluster_begin();
    hpc_new();
    CHECK_TEXT(hpc_text, out);
    CHECK_CONTAINS(err, "config/gradpool/hpc.conf\n");
    CHECK_CONTAINS(err, "note: this host has no folder /shared/none; create it before the first job");
    CHECK(stat(in_root("config/gradpool/hpc.conf"), &info) == 0 && (info.st_mode & 0777) == 0600);
    RUN_CODE(1, "cluster", "new", "hpc", "--type", "slurm", "--folder", "/f");
    CHECK_CONTAINS(err, "the profile 'hpc' exists already (");
    RUN_CODE(0, "cluster", "new", "hpc", "--type", "slurm", "--folder", in_root(""), "--force", "--quiet");
    CHECK_TEXT("", err);
    RUN_CODE(0, "cluster", "show", "hpc", "--json");
    CHECK_NEAR(0, reported("gpus"), 0);
    CHECK_TEXT(in_root(""), printed("folder"));
}

TEST(new_refuses_wrong_settings_and_writes_nothing)
{
    static const struct {
        const char *words[8];
        int code;
        const char *message;
    } cases[] = {
        { { "q" }, 2, "--type is missing; use --type slurm, ssh, kubernetes or command" },
        { { "q", "--type", "slrum" }, 2, "type is 'slrum'; did you mean 'slurm'?" },
        { { "q", "--type", "slurm" }, 1, "the setting 'folder' is missing" },
        { { "q", "--type", "slurm", "--foldr", "/f" }, 2, "unknown option --foldr; did you mean --folder?" },
        { { "q", "--type", "slurm", "--folder", "f" }, 1, "folder = f: the path must be absolute" },
        { { "q", "--type", "slurm", "--folder", "/f", "--gpus", "65" },
          2,
          "gpus is 65; must be between 0 and 64" },
        { { "q", "--type", "slurm", "--folder", "/f", "--hosts", "a" },
          1,
          "'hosts' is a setting of type ssh; this profile has the type slurm" },
        { { "q", "--type", "slurm", "--folder", "/f", "--slurm.option", "--export=ALL" },
          1,
          "gradpool sets --export itself" },
        { { "a:b", "--connect", "tcp://h:1" }, 1, "invalid profile name 'a:b'" },
        { { "default", "--connect", "tcp://h:1" }, 1, "the profile name 'default' is reserved" },
    };

    cluster_begin();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *words[11] = { "cluster", "new" };

        memcpy(words + 2, cases[i].words, sizeof(cases[i].words));
        FINISH_CODE(cases[i].code, start(-1, -1, words));
        CHECK_CONTAINS(err, cases[i].message);
    }
    CHECK(access(in_root("config/gradpool"), F_OK) != 0);
}

TEST(verbs_refuse_options_without_effect)
{
    cluster_begin();
    RUN_CODE(2, "cluster", "show", "hpc", "--gpus", "3");
    CHECK_CONTAINS(err, "--gpus is an option of `gradpool cluster new`");
    RUN_CODE(2, "cluster", "list", "--force");
    CHECK_CONTAINS(err, "--force is an option of `gradpool cluster new` and `import`");
    RUN_CODE(2, "cluster", "export", "hpc", "--name", "x");
    CHECK_CONTAINS(err, "--name is an option of `gradpool cluster import`");
    RUN_CODE(2, "cluster", "lst");
    CHECK_CONTAINS(err, "unknown verb 'lst'; did you mean 'list'?");
}

TEST(list_shows_all_profiles_also_malformed_ones)
{
    cluster_begin();
    RUN_CODE(0, "cluster", "list");
    CHECK_TEXT("", out);
    CHECK_CONTAINS(err, "no profile; create one with: gradpool cluster new");
    RUN_CODE(0, "cluster", "list", "--json");
    CHECK_TEXT("[]\n", out);
    hpc_new();
    RUN_CODE(0, "cluster", "new", "box", "--connect", "tcp://h:1");
    RUN_CODE(0, "cluster", "default", "hpc");
    RUN_CODE(0, "cluster", "list");
    CHECK_TEXT("name  type   folder or address\n"
               "box   pool   tcp://h:1\n"
               "hpc   slurm  /shared/none       default\n",
               out);
    write_file("config/gradpool/bad.conf", "tpe = slurm\n");
    chmod(in_root("config/gradpool/bad.conf"), 0600);
    RUN_CODE(1, "cluster", "list");
    CHECK_CONTAINS(out, "bad   malformed  line 1 of ");
    CHECK_CONTAINS(out, "\nhpc   slurm ");
    RUN_CODE(1, "cluster", "list", "--json");
    gp_json *json = pools_json(out);

    CHECK_INT(3, gp_json_count(json));
    CHECK_CONTAINS(gp_json_text(gp_json_member(gp_json_element(json, 0), "error"), ""),
                   "unknown setting 'tpe'");
    CHECK_TEXT("tcp://h:1", gp_json_text(gp_json_member(gp_json_element(json, 1), "connect"), ""));
    CHECK(gp_json_bool(gp_json_member(gp_json_element(json, 2), "default"), false));
    gp_json_free(json);
}

TEST(the_default_profile_is_set_shown_and_removed)
{
    cluster_begin();
    hpc_new();
    RUN_CODE(1, "cluster", "default");
    CHECK_CONTAINS(err, "there is no default profile; set one with: gradpool cluster default NAME");
    RUN_CODE(1, "cluster", "default", "hcp");
    CHECK_CONTAINS(err, "there is no profile 'hcp'; did you mean 'hpc'?");
    RUN_CODE(0, "cluster", "default", "hpc");
    RUN_CODE(0, "cluster", "default");
    CHECK_TEXT("hpc\n", out);
    RUN_CODE(0, "cluster", "show", "default", "--json");
    CHECK_TEXT("hpc", printed("name"));
    RUN_CODE(0, "cluster", "default", "none");
    RUN_CODE(0, "cluster", "default", "--json");
    CHECK_TEXT("", printed("default"));
    RUN_CODE(0, "cluster", "default", "hpc");
    RUN_CODE(0, "cluster", "remove", "hpc");
    RUN_CODE(1, "cluster", "default");
    RUN_CODE(1, "cluster", "remove", "hpc");
    CHECK_CONTAINS(err, "there is no profile 'hpc'");
}

TEST(an_exported_profile_can_be_imported)
{
    cluster_begin();
    hpc_new();
    RUN_CODE(0, "cluster", "export", "hpc");
    CHECK_CONTAINS(out, hpc_text);
    write_file("w/given.conf", out);
    RUN_CODE(0, "cluster", "import", "given.conf");
    CHECK_TEXT(hpc_text, out);
    RUN_CODE(0, "cluster", "show", "given");
    RUN_CODE(1, "cluster", "import", "given.conf");
    CHECK_CONTAINS(err, "the profile 'given' exists already");
    RUN_CODE(0, "cluster", "import", "given.conf", "--force");
    int in = open(in_root("w/given.conf"), O_RDONLY | O_CLOEXEC);

    FINISH_CODE(0, start(in, -1, (const char *const[]){ "cluster", "import", "-", "--name", "piped", NULL }));
    close(in);
    RUN_CODE(0, "cluster", "show", "piped");
    CHECK_TEXT(hpc_text, out);
    RUN_CODE(1, "cluster", "import", "-");
    CHECK_CONTAINS(err, "the profile has no name; give --name NAME");
    write_file("w/wrong.conf", "type = slurm\nfolder = /f\ngpus = many\n");
    RUN_CODE(1, "cluster", "import", "wrong.conf");
    CHECK_CONTAINS(err, "line 3 of wrong.conf: gpus is 'many'; must be a whole number");
    RUN_CODE(1, "cluster", "show", "wrong");
    RUN_CODE(1, "cluster", "import", "missing.conf");
    CHECK_CONTAINS(err, "missing.conf");
}

TEST(a_profile_of_a_cluster_is_not_a_pool)
{
    cluster_begin();
    hpc_new();
    RUN_CODE(1, "status", "--pool", "hpc");
    CHECK_CONTAINS(err, "'hpc' is a profile of type slurm, not a pool; use gradpool submit --profile hpc");
}
