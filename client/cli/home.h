/* `gradpool` without a command. */
#ifndef GP_CLI_HOME_H
#define GP_CLI_HOME_H

/* Print the pool state and suggest next commands. Return the exit code. */
int cli_home(void);

#endif
