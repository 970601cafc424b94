// The token of this window, and the roles.

const KEY = "token";

/// Roles in ascending order; each may do what those before it may.
const ROLES = ["viewer", "operator", "administrator"];

/// Whether someone of this role may do what needs `needed`.
export const may = (role, needed) => ROLES.indexOf(role) >= ROLES.indexOf(needed);

/// A token stays until the window is closed. Other windows do not see it.
export const keptToken = {
  read() {
    try {
      return sessionStorage.getItem(KEY);
    } catch {
      return null;
    }
  },
  write(token) {
    try {
      if (token) sessionStorage.setItem(KEY, token);
      else sessionStorage.removeItem(KEY);
    } catch {
      // Then the token lives as long as the page.
    }
  },
};
