mod gone_namespaces;
mod gone_policies;
